"""What a command shows on a terminal. usage: terminal.py COLUMNS COMMAND...: its output, stdout and stderr as they
came; its exit code."""
import fcntl
import os
import pty
import struct
import sys
import termios

columns, command = int(sys.argv[1]), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.environ["TERM"] = "xterm"
    os.execvp(command[0], command)
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:  # the other side is closed
        break
    if not data:
        break
    os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
