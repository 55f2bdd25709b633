"""Ways to run the one function that makes an Arrow record batch private: here, in local processes, on Spark, on Ray.

``batch`` holds the function and what a process builds it from; every other module only carries batches or tasks to it.
Files and formats are in ``textpriv.corpus``.
"""
