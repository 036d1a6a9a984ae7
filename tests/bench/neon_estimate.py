"""Estimates the inner loops of the NEON driver on Neoverse V2 by llvm-mca: cycles for 64 bytes, beside a copy by ldp and
stp. Needs g++-aarch64-linux-gnu and llvm-19. usage: neon_estimate.py [SOURCE-DIR]"""
import pathlib
import re
import subprocess
import sys

COPY = """.Ltop:
 ldp q0,q1,[x1],#64
 ldp q2,q3,[x1,#-32]
 stp q0,q1,[x0],#64
 stp q2,q3,[x0,#-32]
 subs x2,x2,#1
 b.ne .Ltop
"""
COMPILE = ("aarch64-linux-gnu-g++ -std=c++20 -O3 -fno-schedule-insns -ffixed-v30 -ffixed-v31"
           " -fconstexpr-ops-limit=1000000000 -x c++ -S -o - -").split()
MCA = "llvm-mca-19 -mtriple=aarch64 -mcpu=neoverse-v2 -iterations=400".split()


def output(command, text):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def cycles(assembly):
    return int(re.search(r"Total Cycles: +(\d+)", output(MCA, assembly)).group(1)) / 400


def marked(source):
    """Adds a comment to the assembly before and after the work on a span of `vectors` vectors."""
    load, store = "auto x = load<", "store<L, zipping, v>(x, packed"
    for line in (load, store):
        assert source.count(line) == 1, line
    source = source.replace(load, 'asm volatile("# BEGIN %0" ::"i"(SpanDistances<L>::vectors) : "memory"); ' + load)
    return re.sub(f"({re.escape(store)}.*?;\n *}}\\);)", r'\1 asm volatile("# END" ::: "memory");', source, flags=re.S)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    source = (root / "kernels/pack/cpu/driver_neon.cpp").read_text()
    assembly = output([*COMPILE, f"-I{root}"], marked(source))
    copy = cycles(COPY)
    print(f"{'copy':30} {copy:6.2f}")
    for name, sve, body in re.findall(r"13pack_shufflesINS_\d+(\w+?)ELb(.)EEE\w+:\n(.*?)\.size", assembly, re.S):
        vectors, loop = re.search(r"# BEGIN (\d+)(.*?)# END", body, re.S).groups()
        code = "\n".join(line for line in loop.split("\n") if not line.startswith(("#", "//")))
        assert not re.search(r"^\.L\w+:", code, re.M), name  # llvm-mca follows no branch
        each = cycles(code) * 4 / int(vectors)
        print(f"{name + ', SVE' * int(sve):30} {each:6.2f} {each / copy:6.2f}")


if __name__ == "__main__":
    main()
