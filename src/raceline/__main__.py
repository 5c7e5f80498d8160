"""`python -m raceline`."""

from raceline.cli import main

if __name__ == "__main__":
    main()
