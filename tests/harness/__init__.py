"""What black-box tests stand on: a real server process, its clock, and two HTTP clients."""
