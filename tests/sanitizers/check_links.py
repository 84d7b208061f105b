"""Checks that programs link neither gRPC nor protobuf, not even through another library.

    check_links.py PROGRAM...    programs that are not built are passed over, but not all of them
"""
import os
import re
import subprocess
import sys

FORBIDDEN = re.compile(r"lib(grpc|gpr|protobuf|upb|address_sorting)")


def main(programs):
    built = [program for program in programs if os.path.exists(program)]
    if not built:
        sys.exit("none of the programs is built")
    failed = False
    for program in built:
        listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True)
        for line in listing.stdout.splitlines():
            if FORBIDDEN.search(line):
                print(f"{program} links {line.split()[0]}")
                failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main(sys.argv[1:])
