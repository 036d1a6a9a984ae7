"""Estimates the NEON driver on Neoverse V2: cycles and instructions for 64 bytes of each layout, packed and unpacked. Its
program runs under qemu-user, which lists each instruction that executes; llvm-mca counts the cycles of that list.
Needs g++-aarch64-linux-gnu, qemu-user and llvm-19. usage: neon_estimate.py [SOURCE-DIR [NAME]]; NAME: of some layouts"""
import pathlib
import re
import subprocess
import sys
import tempfile

COPY = ["ldp q0,q1,[x1],#64", "ldp q2,q3,[x1,#-32]", "stp q0,q1,[x0],#64", "stp q2,q3,[x0,#-32]", "subs x2,x2,#1", "b ."]
COMPILE = "aarch64-linux-gnu-g++ -std=c++20 -O3 -fno-schedule-insns -fconstexpr-ops-limit=1000000000 -static".split()
SOURCES = "layouts/layouts layouts/modes layouts/modes_of pack/repeats".split()
SOURCES += [f"pack/cpu/{name}" for name in "numbers lane_moves planes find_route strips driver_neon".split()]
MCA = "llvm-mca-19 -mtriple=aarch64 -mcpu=neoverse-v2 -iterations=1".split()
ENOUGH = 60000  # instructions

PROGRAM = """
#include <cstdio>
#include <cstring>
#include "kernels/pack/cpu/strips.h"
#include "tests/bench/bench_rows.h"
using namespace mxfp4;
int main(int argc, char** argv) {
  std::string name;
  for (const Row& row : rows_of({"", 1, 2944, 3072, 5888, 3072, false}, argv[1])) {
    if (row.name != in_file) name = row.name;
    if (!row.modes || (argc > 2 && name != argv[1])) continue;
    const Strips strips(*row.modes, neon_driver);
    if (strips.is_plain()) continue;
    const Shape s = row.modes->storage;
    std::vector<uint8_t> rows(size_t(s.n * s.b)), packed(rows.size() * size_t(row.modes->copies));
    if (argc < 3)
      std::printf("%lld %s\\n", static_cast<long long>(strips.rows() * s.b), name.c_str());
    else if (std::strcmp(argv[2], "pack") == 0)
      strips.pack(rows.data(), 0, packed.data());
    else
      strips.unpack(packed.data(), 0, rows.data(), false);
  }
}
"""


def output(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def cycles(instructions):
    return int(re.search(r"Total Cycles: +(\d+)", output(*MCA, text="\n".join(instructions))).group(1))


def straight(instruction):
    """An instruction without the address to which it leads. llvm-mca waits at calls and nops for all before them."""
    instruction = re.sub(r"\s*(<|//).*$", "", re.sub(r"^(bl|blr|ret|br|nop)\b.*", "b .", instruction))
    return re.sub(r"^(b|b\.\w+|adrp?|cbn?z|tbn?z|ldr)(\s[^[]*?)(0x)?[0-9a-f]+$", r"\1\2.", instruction)


class Driver:
    def __init__(self, root, folder):
        self.program, self.log = f"{folder}/program", folder / "log"
        (folder / "program.cpp").write_text(PROGRAM)
        files = [str(root / "kernels" / f"{name}.cpp") for name in SOURCES]
        output(*COMPILE, f"-I{root}", *files, f"{folder}/program.cpp", "-o", self.program)
        symbols = re.findall(r"^(\w+) (\w+) t .*run_(?:pass|route)", output("nm", "-S", self.program), re.M)
        first = min(int(at, 16) for at, _ in symbols)
        self.range = f"{first:#x}..{max(int(at, 16) + int(size, 16) for at, size in symbols) - 1:#x}"
        dump = output("aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", self.program)
        self.code = {int(at, 16): straight(code) for at, code in re.findall(r"^ +(\w+):\t(.*)", dump, re.M)}

    def run(self, *arguments):
        trace = ["-singlestep", "-d", "exec,nochain", "-dfilter", self.range, "-D", self.log]
        return output("qemu-aarch64", *trace, self.program, *arguments)

    def executed(self, name, way):
        self.run(name, way)
        places = (int(at, 16) for at in re.findall(r"^Trace .*?/(\w+)/", self.log.read_text(), re.M))
        return [self.code[at] for at in places]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    copy = cycles(COPY * 1000) / 1000
    print(f"{'copy':38} {copy:6.2f}")
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(root, pathlib.Path(folder))
        for line in driver.run(sys.argv[2] if len(sys.argv) > 2 else "").splitlines():
            strip, name = line.split(" ", 1)
            for way in ("pack", "unpack"):
                executed = driver.executed(name, way)
                if not executed:
                    continue  # the C library copies
                first = executed[:ENOUGH]
                lines = int(strip) / 64 * len(first) / len(executed)
                each = cycles(first) / lines
                print(f"{name + ' ' + way:38} {each:6.2f} {each / copy:6.2f} {len(first) / lines:6.1f}")


if __name__ == "__main__":
    main()
