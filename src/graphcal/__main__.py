"""``python -m graphcal`` is ``graphcal``."""

from graphcal.cli import main

if __name__ == "__main__":
    main()
