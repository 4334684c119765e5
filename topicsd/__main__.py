"""`python -m topicsd` is the `topicsd` command."""

from topicsd.cli.main import main

if __name__ == "__main__":
    main()
