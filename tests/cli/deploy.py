"""The examples of mxfp4-pack-deploy(7). usage: deploy.py PAGE DIR [ROOT]

Writes DIR/gpt-oss.service, checks the manifests, and prints `NAME COMMAND` for each conversion and for the
wait for it, with ROOT in the place of /models. Prints a line for each fault on stderr; exit code 1: there are some,
77: no PyYAML.

The lists of fields are written down from Kubernetes' API reference (batch/v1, apps/v1, core/v1) for the fields in use,
because no package of Debian has its schema: a field that is not listed counts as a fault.
"""

import json
import re
import shlex
import sys

try:
    import yaml
except ImportError:
    sys.exit(77)

TEXT, NUMBER, FLAG, NAMES = str, int, bool, {str: str}
MOUNT = {"name": TEXT, "mountPath": TEXT, "readOnly": FLAG}
CONTAINER = {"name": TEXT, "image": TEXT, "command": [TEXT], "args": [TEXT], "env": [{"name": TEXT, "value": TEXT}],
             "ports": [{"containerPort": NUMBER}], "resources": {"requests": NAMES, "limits": NAMES},
             "readinessProbe": {"httpGet": {"path": TEXT, "port": NUMBER}}, "volumeMounts": [MOUNT]}
VOLUME = {"name": TEXT, "persistentVolumeClaim": {"claimName": TEXT, "readOnly": FLAG}, "emptyDir": {"medium": TEXT}}
POD = {"metadata": {"labels": NAMES}, "spec": {"restartPolicy": TEXT, "initContainers": [CONTAINER], "containers": [CONTAINER],
                                               "volumes": [VOLUME]}}
OBJECT = {"apiVersion": TEXT, "kind": TEXT, "metadata": {"name": TEXT}}
SCHEMAS = {"batch/v1 Job": OBJECT | {"spec": {"backoffLimit": NUMBER, "template": POD}},
           "apps/v1 Deployment": OBJECT | {"spec": {"replicas": NUMBER, "selector": {"matchLabels": NAMES}, "template": POD}}}
VALUES = {"modelArtifacts": {"name": TEXT, "uri": TEXT}}
NEEDED = {"name", "image", "containers", "template", "claimName", "mountPath", "selector"}
faults = []


def expect(right, what):
    if not right:
        faults.append(what)


def check(value, schema, where):
    if isinstance(schema, type):
        return expect(type(value) is schema, f"{where} is {value!r}, expected {schema.__name__}")
    if isinstance(schema, list):
        expect(isinstance(value, list) and value, f"{where} is no list")
        return [check(one, schema[0], f"{where}[{i}]") for i, one in enumerate(value if isinstance(value, list) else [])]
    if not isinstance(value, dict):
        return expect(False, f"{where} is {value!r}, expected fields")
    for name, inner in value.items():
        of = schema[str] if str in schema else schema.get(name)
        expect(of is not None, f"{where}.{name} is not known")
        if of is not None:
            check(inner, of, f"{where}.{name}")
    for name in NEEDED & schema.keys() - value.keys():
        expect(False, f"{where}.{name} is missing")


def examples(page):
    with open(page) as file:
        return [block.replace("\\e", "\\") for block in re.findall(r"^\.Bd -literal\n(.*?)^\.Ed$", file.read(), re.M | re.S)]


def check_pod(pod, kind):
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in pod.get("initContainers", []) + pod["containers"]:
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        expect(mounted <= volumes, f"{kind}: {container['name']} mounts {mounted - volumes}, which are no volumes")
    for volume in pod["volumes"]:
        expect(len(volume) == 2, f"{kind}: volume {volume['name']} needs one source")
    policies = {"Job": ("Never", "OnFailure"), "Deployment": ("Always", None)}
    expect(pod.get("restartPolicy") in policies[kind], f"{kind}: restartPolicy is {pod.get('restartPolicy')}")


def check_manifest(manifest):
    kind = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
    expect(kind in SCHEMAS, f"no schema of {kind}")
    check(manifest, SCHEMAS.get(kind, {}), manifest.get("kind"))
    if faults:
        return
    check_pod(manifest["spec"]["template"]["spec"], manifest["kind"])
    if manifest["kind"] == "Deployment":
        labels, selected = manifest["spec"]["template"]["metadata"]["labels"], manifest["spec"]["selector"]["matchLabels"]
        expect(selected.items() <= labels.items(), f"Deployment: {selected} selects no pod with {labels}")


def check_paths(unit, manifests, values):
    """All examples convert to one directory and serve it. Returns {name: command}."""
    pods = {kind: manifest["spec"]["template"]["spec"] for kind, manifest in manifests.items()}
    command = pods["Job"]["containers"][0]["command"]
    wait = pods["Deployment"]["initContainers"][0]["command"]
    start, serve = (shlex.split(re.search(rf"^{name}=(.*)", unit, re.M)[1]) for name in ("ExecStartPre", "ExecStart"))
    expect(start[1:] == command[1:], "unit and Job convert differently")
    out = command[3]
    expect(out == serve[2] == pods["Deployment"]["containers"][0]["args"][0], "a server starts from another directory")
    expect(f"test -e {out}/" in wait[2], "the Deployment waits for another directory")
    claims = {pod["volumes"][0]["persistentVolumeClaim"]["claimName"] for pod in pods.values()}
    expect(len(claims) == 1, f"Job and Deployment have the volumes {claims}")
    uri = f"pvc://{min(claims)}/{out.removeprefix('/models/')}"
    expect(values["modelArtifacts"]["uri"] == uri, f"llm-d reads another directory than {uri}")
    expect("--force" not in unit + json.dumps(manifests), "--force is in an example")
    return {"unit": start, "job": command, "wait": wait}


def main(page, directory, root="/models"):
    blocks = examples(page)
    unit, = (block for block in blocks if "[Unit]" in block)
    with open(f"{directory}/gpt-oss.service", "w") as file:
        file.write(unit)
    manifests = {m["kind"]: m for m in (yaml.safe_load(block) for block in blocks if block.startswith("apiVersion"))}
    values = yaml.safe_load(next(block for block in blocks if block.startswith("modelArtifacts")))
    check(values, VALUES, "values")
    for manifest in manifests.values():
        check_manifest(manifest)
    if not faults:  # all fields are there
        for name, words in check_paths(unit, manifests, values).items():
            print(name, shlex.join(words).replace("/models", root))
    for fault in faults:
        print(fault, file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
