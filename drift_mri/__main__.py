"""`python -m drift_mri` is `drift-mri`."""

from .command import main

if __name__ == "__main__":
    main()
