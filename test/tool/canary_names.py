"""canary_names.py LIST: the names of the canaries, one a line."""
import sys

for line in open(sys.argv[1], encoding="utf-8"):
    words = line.split("#", 1)[0].split()
    if words:
        print(words[0])
