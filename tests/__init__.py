import os
import sys

# Without bytecode every process would rewrite all assertions anew, and every child of a test compile the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
