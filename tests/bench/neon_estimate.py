"""Estimates the NEON driver on Neoverse V2 by llvm-mca: cycles for 64 bytes of each layout, packed and unpacked, beside
a copy by ldp and stp. A group's steps are compiled as straight code, with the instructions that find each step.
Needs g++, g++-aarch64-linux-gnu and llvm-19. usage: neon_estimate.py [SOURCE-DIR [NAME]]; NAME: of some layouts"""
import pathlib
import re
import subprocess
import sys
import tempfile

COPY = """.Ltop:
 ldp q0,q1,[x1],#64
 ldp q2,q3,[x1,#-32]
 stp q0,q1,[x0],#64
 stp q2,q3,[x0,#-32]
 subs x2,x2,#1
 b.ne .Ltop
"""
NATIVE = "g++ -std=c++20 -O1 -fconstexpr-ops-limit=1000000000 -x c++".split()
ARM = "aarch64-linux-gnu-g++ -std=c++20 -O3 -fno-ipa-icf -x c++ -S -o -".split()
MCA = "llvm-mca-19 -mtriple=aarch64 -mcpu=neoverse-v2 -iterations=400".split()
SOURCES = "layouts/layouts layouts/modes layouts/modes_of pack/cpu/numbers pack/cpu/lane_moves pack/cpu/planes pack/cpu/find_route".split()
DISPATCH = "ldr w9,[x20]\\n cmp w9,#8\\n ldrh w9,[x21,w9,uxtw #1]\\n adr x10,.\\n add x9,x10,w9,sxth #2\\n add x20,x20,#128\\n br x9"

TERM = ("ldr w9,[x20]\\n ldrh w9,[x21,w9,uxtw #1]\\n adr x10,.\\n add x9,x10,w9,sxth #2\\n br x9\\n"
        " ldrb w9,[x20,#4]\\n add x20,x20,#48\\n tbz w9,#0,.")

PRINT = """
#include <cstdio>
#include "kernels/pack/cpu/route.h"
#include "tests/bench/bench_rows.h"
using namespace mxfp4;
void print(std::string name, const char* way, const Route& r) {
  for (char& c : name) c = c == ' ' ? '_' : c;
  for (const auto& pass : r.passes) {
    std::printf("%s %s %d", name.c_str(), way, pass.slots);
    for (const auto& s : pass.steps) {
      std::printf(" %d:", s.code);
      if (s.terms.empty()) continue;
      for (const auto& t : s.terms) std::printf("%d%s,", t.code, t.last ? "_last" : "");
    }
    std::puts("");
  }
}
int main(int, char** argv) {
  std::string name;
  for (const Row& row : rows_of({"", 1, 2944, 3072, 5888, 3072, false}, argv[1])) {
    if (row.name != in_file) name = row.name;
    if (!row.modes) continue;
    const auto routes = find_routes(*row.modes, numbers_of(*row.modes), {4, 4, Mixing::cheapest, false, 4, 4, 4});
    if (!routes) continue;
    print(name, "pack", routes->pack);
    print(name, "unpack", routes->unpack);
  }
}
"""


def output(command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def cycles(assembly):
    return int(re.search(r"Total Cycles: +(\d+)", output(MCA, assembly)).group(1)) / 400


def passes(root, name):
    """(layout, way, slots, steps) of every pass, as the program at `root` finds them."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(root / "kernels" / f"{name}.cpp") for name in SOURCES]
        (pathlib.Path(folder) / "print.cpp").write_text(PRINT)
        output([*NATIVE, f"-I{root}", *files, f"{folder}/print.cpp", "-o", f"{folder}/print"])
        for line in output([f"{folder}/print", name]).splitlines():
            name, way, slots, *steps = line.split()
            yield name, way, int(slots), [step.split(":") for step in steps]


def mix_of(slots, planes, terms, place):
    """The terms of a mix, each after a jump."""
    words = (1 << slots) // planes
    out = [f"V::Vector y{place}[{1 << slots}];"]
    to = 0
    for i, term in enumerate(terms):
        code = int(term.split("_")[0])
        out.append(f'asm volatile("{TERM}" ::: "x9", "x10", "x20", "x21", "cc");')
        for w in range(words):
            sum = f"y{place}[{w * planes + to}]"
            out.append(f"{sum} = V::add<{code // planes}>({sum}, x[{w * planes + code % planes}], step[{place}].terms[{i}]);")
        to += "last" in term
    return out + [f"x[{v}] = y{place}[{v}];" for v in range(1 << slots)]


def code_of(number, slots, steps):
    """A function with a pass's work on one group, between two marks."""
    vectors = 1 << slots
    out = [f'extern "C" void pass{number}(const uint8_t* from, uint8_t* to, const int64_t* group, const Route::Places& in,'
           ' const Route::Places& out, const Route::Step* step) {',
           "struct { int64_t step[4]; int64_t operator[](int i) const { return step[i]; } } from_slot, to_slot;"]
    for side, places in (("from", "in"), ("to", "out")):
        out += [f"{side}_slot.step[{i}] = {places}.slot[{i}]; asm volatile(\"\" : \"+r\"({side}_slot.step[{i}]));" for i in range(slots)]
    out += [f'V::Vector x[{vectors}]; asm volatile("# BEGIN" ::: "memory");']
    out += ["__builtin_prefetch(from + group[1]);"] * (vectors // 4)
    out += [f"each_vector<{slots}>(from + group[2], from_slot, [&](auto v, const uint8_t* at) {{ x[v] = V::load(at); }});"]
    for place, (code, *mix) in enumerate(steps):
        code = int(code)
        out.append(f'asm volatile("{DISPATCH}" ::: "x9", "x10", "x20", "x21", "cc");')
        out += [f'asm volatile("" : "+w"(x[{v}]));' for v in range(vectors)]  # steps do not become one
        if code < 96:
            out += [f"move<V, {slots}, {code}>(x);"]
        elif code == 96:
            out += [f"x[{v}] = V::sorted(x[{v}], step[{place}].index.data());" for v in range(vectors)]
        else:
            out += mix_of(slots, 1 << code - 98, mix[0].split(",")[:-1], place)
    out += [f"each_vector<{slots}>(to + group[3], to_slot, [&](auto v, uint8_t* at) {{ V::store(at, x[v]); }});"]
    return "\n".join(out + ['asm volatile("# END" ::: "memory");', "}"])


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    all_passes = list(passes(root, sys.argv[2] if len(sys.argv) > 2 else ""))
    source = (root / "kernels/pack/cpu/driver_neon.cpp").read_text()
    source = source[:source.index("constinit")]
    source += "\n".join(code_of(i, slots, steps) for i, (_, _, slots, steps) in enumerate(all_passes)) + "\n}\n"
    assembly = output([*ARM, f"-I{root}", "-"], source)
    copy, sums = cycles(COPY), {}
    for number, body in re.findall(r"\npass(\d+):\n(.*?)\.size", assembly, re.S):
        name, way, slots, _ = all_passes[int(number)]
        loop = re.search(r"# BEGIN(.*?)# END", body, re.S).group(1)
        code = "\n".join(line for line in loop.split("\n") if not line.startswith(("#", "//")))
        sums[name, way] = sums.get((name, way), 0) + cycles(code) * 4 / (1 << slots)
    print(f"{'copy':30} {copy:6.2f}")
    for (name, way), each in sums.items():
        print(f"{name + ' ' + way:38} {each:6.2f} {each / copy:6.2f}")


if __name__ == "__main__":
    main()
