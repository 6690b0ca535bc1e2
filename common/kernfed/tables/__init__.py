"""Tables that people bring: CSV, NPZ, Parquet."""
