"""Writers that turn a solution into files."""
