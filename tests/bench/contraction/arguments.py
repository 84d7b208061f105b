"""Types of command-line arguments that the benchmarks share."""

import argparse


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def names(text):
    return [name for name in text.split(",") if name]
