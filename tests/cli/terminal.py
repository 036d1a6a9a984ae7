"""What a command shows on a terminal. usage: terminal.py COLUMNS COMMAND...: its output, stdout and stderr as they
came; its exit code."""
import fcntl
import os
import pty
import select
import struct
import sys
import termios


def login(terminal):
    """The terminal becomes the controlling one, and stdin, stdout and stderr."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(terminal, fd)


columns, command = int(sys.argv[1]), sys.argv[2:]
terminal, its_side = pty.openpty()
fcntl.ioctl(its_side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
pid = os.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    login(its_side)
    os.execvp(command[0], command)
ended = None
# The program's side stays open here, because the kernel may drop unread data when the last process closes it.
while ended is None or select.select([terminal], [], [], 0.03)[0]:
    if select.select([terminal], [], [], 0.01)[0]:
        os.write(1, os.read(terminal, 65536))
    elif ended is None:
        done, status = os.waitpid(pid, os.WNOHANG)
        ended = status if done else None
sys.exit(os.waitstatus_to_exitcode(ended))
