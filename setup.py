"""What pyproject.toml cannot say: `experiments/` travels inside the package, as `fpl/experiments`."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["fpl", "fpl.*"]), "fpl.experiments"],
    package_dir={"fpl.experiments": "experiments"},
    package_data={
        "fpl": ["py.typed", "losses/kernels/source/*", "report/templates/*"],
        "fpl.experiments": ["*.md", "*/*.toml"],
    },
    include_package_data=False,
)
