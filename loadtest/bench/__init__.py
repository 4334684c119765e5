"""`python -m loadtest.bench`: the product's speed and memory goals, measured in one run.

Goals are ratios against a baseline of the same run wherever a machine's speed would decide,
and absolute numbers where the promise is absolute (memory, time to ready).
"""
