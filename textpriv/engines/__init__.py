"""Engines: ways to run the one function that makes an Arrow record batch private, here, in processes, on Spark, on Ray."""
