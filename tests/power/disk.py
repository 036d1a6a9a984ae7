"""The possible states of a disk after a loss of power: recorded calls (record.cpp) on a model of files and folders.

Only a sync makes calls durable: that of a file its bytes, size and mode, that of a folder its names. Without a sync:
- Any number of the last calls on a folder since its last sync are lost, independently for each folder.
- Changes of a file's size and mode are lost in the same way. Each written sector of 512 bytes holds the old data (zeros
  if there were none) or the new data, in any order.
A rename is one step, also between two folders, as on file systems with a journal: a sync of either folder makes it
durable in both, with the calls before it. Any other recorded call ends the test.
"""
import os
import stat

SECTOR = 512
# whether names, sizes and modes are kept, whether bytes are
POLICIES = {"nothing is lost": (True, True), "all is lost": (False, False), "data is lost": (True, False),
            "names are lost": (False, True)}


class Luck:
    """Which of the calls since the last sync are on the disk."""

    def __init__(self, random, policy=None):
        self.random, self.policy = random, POLICIES.get(policy)

    def count(self, calls):
        if self.policy:
            return calls if self.policy[0] else 0
        return self.random.choice((0, calls, self.random.randint(0, calls)))

    def keeps(self):
        return self.policy[1] if self.policy else self.random.random() < 0.5


class File:
    def __init__(self, mode, data=b""):
        self.mode, self.data, self.live, self.calls = mode, data, bytearray(data), []

    def do(self, call, number=0, data=b""):
        self.calls.append((call, number, data))
        apply(self.live, call, number, data)

    def sync(self):
        self.mode = next((n for call, n, _ in reversed(self.calls) if call == "mode"), self.mode)
        self.data, self.calls = bytes(self.live), []

    def after_loss(self, luck):
        data, mode = bytearray(self.data), self.mode
        kept = luck.count(len(self.calls))
        for i, (call, number, written) in enumerate(self.calls):
            if call == "write":
                if i < kept and number + len(written) > len(data):
                    data.extend(bytes(number + len(written) - len(data)))
                tear(data, number, written, luck)
            elif i < kept and call == "mode":
                mode = number
            elif i < kept:
                apply(data, call, number, written)
        return mode, bytes(data)


def apply(data, call, number, written):
    if call == "write":
        data.extend(bytes(max(0, number - len(data))))
        data[number:number + len(written)] = written
    elif call == "truncate":
        del data[number:]
        data.extend(bytes(number - len(data)))
    elif call == "allocate":
        data.extend(bytes(max(0, number - len(data))))


def tear(data, at, written, luck):
    """Sectors that begin within the file; data beyond its size are lost with the size."""
    end = min(at + len(written), len(data))
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        if luck.keeps():
            data[at:stop] = written[:stop - at]
        written, at = written[stop - at:], stop


class Folder:
    """calls: (call, arguments, pair); a rename between folders has the same pair of both folders in both lists."""

    def __init__(self, mode, names=()):
        self.mode, self.names, self.live, self.calls = mode, dict(names), dict(names), []

    def do(self, call, *args, pair=None):
        self.calls.append((call, args, pair))
        rename(self.live, call, args)

    def index(self, pair):
        return next((i for i, call in enumerate(self.calls) if call[2] is pair), -1)

    def sync(self):
        self.settle(len(self.calls))

    def settle(self, count):
        settled, self.calls = self.calls[:count], self.calls[count:]
        self.mode, self.names = self.after(settled)
        for _, _, pair in settled:
            for folder in pair or ():
                folder.settle(folder.index(pair) + 1)

    def after(self, calls):
        names, mode = dict(self.names), self.mode
        for call, args, _ in calls:
            mode = args[0] if call == "mode" else mode
            rename(names, call, args)
        return mode, names


def rename(names, call, args):
    if call in ("add", "put"):
        names[args[0]] = args[1]
    elif call == "remove":
        del names[args[0]]
    elif call == "move":
        names[args[1]] = names.pop(args[0])
    elif call == "swap":
        names[args[0]], names[args[1]] = names[args[1]], names[args[0]]


def move_between(call, old, name, new, name2):
    pair = (old, new)
    first, second = old.live[name], new.live.get(name2)
    if call == "swap":
        old.do("put", name, second, pair=pair)
    else:
        old.do("remove", name, pair=pair)
    new.do("put", name2, first, pair=pair)


class Disk:
    """Begins with the content of a folder, all durable. at: the folder's path in the recorded calls, if it differs."""

    def __init__(self, folder, at=None):
        self.at, self.known, self.folders = str(at or folder), {}, []
        self.root = self.load(str(folder))

    def load(self, path):
        s = os.lstat(path)
        mode = stat.S_IMODE(s.st_mode)
        if stat.S_ISDIR(s.st_mode):
            return self.folder(mode, {name: self.load(f"{path}/{name}") for name in sorted(os.listdir(path))})
        if (s.st_dev, s.st_ino) not in self.known:
            with open(path, "rb") as f:
                self.known[s.st_dev, s.st_ino] = File(mode, f.read())
        return self.known[s.st_dev, s.st_ino]

    def folder(self, mode, names=()):
        self.folders.append(Folder(mode, names))
        return self.folders[-1]

    def find(self, path):
        node = self.root
        for name in path[len(self.at):].split("/")[1:]:
            node = node.live[name]
        return node

    def do(self, call, a, b, path, path2, data):
        if path.endswith(" (deleted)"):
            return
        above, name = path.rsplit("/", 1)
        if call in ("sync", "write", "truncate", "allocate", "mode"):
            node = self.find(path)
            node.sync() if call == "sync" else node.do(call, a, data) if isinstance(node, File) else node.do(call, a)
        elif call in ("create", "mkdir"):
            self.find(above).do("add", name, File(a) if call == "create" else self.folder(a))
        elif call == "remove":
            self.find(above).do("remove", name)
        elif call == "link":
            above2, name2 = path2.rsplit("/", 1)
            self.find(above2).do("add", name2, self.find(path))
        else:
            above2, name2 = path2.rsplit("/", 1)
            if above == above2:
                self.find(above).do(call, name, name2)
            else:
                move_between(call, self.find(above), name, self.find(above2), name2)

    def kept_calls(self, luck):
        """The number of calls of each folder that are on the disk. A rename between folders is in both or in none."""
        kept, before = {folder: luck.count(len(folder.calls)) for folder in self.folders}, None
        while kept != before:
            before = dict(kept)
            for folder in self.folders:
                for i, (_, _, pair) in enumerate(folder.calls[:kept[folder]]):
                    if pair and any(0 <= kept[other] <= other.index(pair) for other in pair):
                        kept[folder] = i
                        break
        return kept

    def after_loss(self, luck):
        """A tree: for each relative path (mode, None) or (mode, bytes, number of the file), as tree_of() reads one."""
        tree, files, kept = {}, {}, self.kept_calls(luck)

        def visit(folder, path):
            mode, names = folder.after(folder.calls[:kept[folder]])
            tree[path] = (mode, None)
            for name, node in sorted(names.items()):
                at = f"{path}/{name}" if path else name
                if isinstance(node, Folder):
                    visit(node, at)
                    continue
                if node not in files:
                    files[node] = (*node.after_loss(luck), len(files))
                tree[at] = files[node]

        visit(self.root, "")
        return tree


def read_log(path):
    with open(path, "rb") as f:
        while line := f.readline():
            call, a, b, first, second, count = line.decode().rstrip("\n").split("\t")
            yield call, int(a), int(b), first, second, f.read(int(count))


def write_tree(tree, folder):
    made = {}
    for path, (mode, *file) in tree.items():
        at = os.path.join(folder, path)
        if file == [None]:
            os.makedirs(at, exist_ok=True)
        elif file[1] in made:
            os.link(made[file[1]], at)
        else:
            made[file[1]] = at
            with open(at, "wb") as f:
                f.write(file[0])
            os.chmod(at, mode)
    for path, (mode, *file) in reversed(tree.items()):
        if file == [None]:
            os.chmod(os.path.join(folder, path), mode)


def contents(tree, below=""):
    """Modes and bytes of a tree, or of a folder in it; None if the folder does not exist."""
    if below:
        tree = {path[len(below):]: node for path, node in tree.items() if f"{path}/".startswith(below + "/")}
    return {path: node[:2] for path, node in tree.items()} or None


def tree_of(folder):
    return Disk(folder).after_loss(Luck(None, "nothing is lost"))


def names_of(tree):
    """What lies in the uppermost folder."""
    return {path for path in tree if path and "/" not in path}
