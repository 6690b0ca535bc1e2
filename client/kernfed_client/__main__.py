"""`python -m kernfed_client` and the console script `kernfed-client`."""

from kernfed_client.cli import main

if __name__ == "__main__":
    main()
