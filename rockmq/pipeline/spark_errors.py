"""What Spark's errors come to, in a line."""

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)
"""What calls of Spark raise. Of a worker that died, or of a JVM that did, only the bridge to Java tells."""


def short(error: Exception) -> str:
    """What an error of ours said in a worker, else the first line of Spark's own."""
    text = str(error)
    if ours := re.findall(r"^rockmq\.[\w.]+: (.+)$", text, re.MULTILINE):
        return str(ours[-1])
    lines = (line.strip(": \t") for line in text.splitlines())
    # Java's exception stands behind the name that the bridge has for what was called.
    said = (line for line in lines if line and not line.startswith("An error occurred while calling "))
    return next(said, type(error).__name__)
