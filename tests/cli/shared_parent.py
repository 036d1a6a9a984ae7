"""Runs a command while another user, who may write in the folder above OUT, swaps what stands there.

usage: shared_parent.py FOLDER HIDDEN TARGET MOMENT -- COMMAND...

FOLDER   the folder above OUT, which everybody may write
HIDDEN   the name in it that is renamed away; a link to TARGET takes its place
TARGET   a private folder of whoever runs COMMAND
MOMENT   a relative name below HIDDEN: the swap happens when that is there. ".": when HIDDEN is. "-": before COMMAND
         begins. "loop": again and again, from before COMMAND to its end

COMMAND is stopped while the swap happens. Prints "swapped", or "not swapped" if the moment never came, and then the exit
code of COMMAND.
"""
import os
import signal
import subprocess
import sys
import time

NOBODY = 65534


def as_another_user(work):
    """Calls work() in a process of another user; its process number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()
        code = 0
    finally:
        os._exit(code)


def swap(hidden, target, number=0):
    os.rename(hidden, f"{hidden}.moved-{number}")
    os.symlink(target, hidden)


def swap_for_ever(hidden, target):
    number = 0
    while True:
        try:
            swap(hidden, target, number)
            number += 1
            os.unlink(hidden)
            os.rename(f"{hidden}.moved-{number - 1}", hidden)
        except OSError:
            pass


def run(hidden, target, moment, command):
    if moment == "-":
        os.waitpid(as_another_user(lambda: swap(hidden, target)), 0)
        return True, subprocess.run(command).returncode
    if moment == "loop":
        attacker = as_another_user(lambda: swap_for_ever(hidden, target))
        code = subprocess.run(command).returncode
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
        return True, code
    program = subprocess.Popen(command)
    awaited = hidden if moment == "." else f"{hidden}/{moment}"
    while program.poll() is None:
        if os.path.lexists(awaited):
            program.send_signal(signal.SIGSTOP)
            time.sleep(0.005)
            swapped = os.waitpid(as_another_user(lambda: swap(hidden, target)), 0)[1] == 0
            program.send_signal(signal.SIGCONT)
            return swapped, program.wait()
    return False, program.returncode


folder, name, target, moment = sys.argv[1:5]
swapped, code = run(os.path.join(folder, name), target, moment, sys.argv[6:])
print("swapped" if swapped else "not swapped", code)
