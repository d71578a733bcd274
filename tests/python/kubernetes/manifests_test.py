# SPDX-License-Identifier: Apache-2.0

"""Tests that docs/kubernetes.md has valid manifests and commands, whose names and numbers agree."""

from __future__ import annotations

import pathlib
import re
import subprocess
import tempfile
import unittest
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob
from ronda_test import RONDARUN, environment

_VERSION = "1.37"
_WRONG = (jsonschema.ValidationError, kubernetes_validate.ValidationError, ValueError)
_PAGE = pathlib.Path("docs/kubernetes.md").read_text()


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


_TEMPLATE = {"template": {"type": "object"}}  # of a pod, which has a schema of Kubernetes
_REPLICAS = {"replicas": {"type": "integer", "minimum": 1}}
# The fields of mpi-operator's v2beta1 API that the page uses. PyPI has no schema of this API.
_MPI_JOB = _object(
    {
        "apiVersion": {"const": "kubeflow.org/v2beta1"},
        "kind": {"const": "MPIJob"},
        "metadata": _object({"name": {"type": "string"}}),
        "spec": _object(
            {
                "mpiReplicaSpecs": _object(
                    {name: _object({**_REPLICAS, **_TEMPLATE}) for name in ("Launcher", "Worker")}
                )
            },
            {
                "slotsPerWorker": {"type": "integer", "minimum": 1},
                "runPolicy": _object({"cleanPodPolicy": {"enum": ["None", "Running", "All"]}}),
            },
        ),
    }
)


def manifests() -> dict[str, dict[str, Any]]:
    """Returns the manifests of the page, by kind."""
    blocks = re.findall(r"```yaml\n(.*?)```", _PAGE, re.DOTALL)
    return {each["kind"]: each for block in blocks for each in yaml.safe_load_all(block)}


def check(manifest: dict[str, Any]) -> None:
    """Checks a manifest. Raises an exception that names any invalid field."""
    kind = manifest["kind"]
    if kind == "TrainJob":
        known = TrainerV1alpha1TrainJob.from_dict(manifest).to_dict()
        if known != manifest:
            raise ValueError(f"TrainJob has no such fields: {manifest}, but {known}")
    elif kind == "MPIJob":
        jsonschema.validate(manifest, _MPI_JOB)
        for name, replicas in manifest["spec"]["mpiReplicaSpecs"].items():
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.lower()}}
            check({**pod, **replicas["template"]})
    else:
        kubernetes_validate.validate(manifest, _VERSION, strict=True)


def container(pod: dict[str, Any]) -> dict[str, Any]:
    """Returns the only container of a pod's template."""
    [only] = pod["template"]["spec"]["containers"]
    return only


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


class ManifestsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.manifests = manifests()

    def dry_run(self, command: list[str], **variables: str) -> str:
        """Returns rondarun's description of what it would start."""
        finished = subprocess.run(
            [str(RONDARUN), "--dry-run", *command[1:]],
            env={**environment(), "RONDA_JOB_SECRET": "secret", **variables},
            capture_output=True,
            text=True,
        )
        self.assertEqual(("rondarun", 0), (command[0], finished.returncode), finished.stderr)
        return finished.stdout

    def test_page_has_these_manifests_and_they_fit_their_schemas(self) -> None:
        self.assertEqual({"Service", "Job", "TrainJob", "MPIJob"}, self.manifests.keys())
        for manifest in self.manifests.values():
            check(manifest)

    def test_misspelt_field_of_any_manifest_is_found(self) -> None:
        for kind, path in {
            "Service": ("spec",),
            "Job": ("spec", "template", "spec", "containers", 0),
            "TrainJob": ("spec", "trainer"),
            "MPIJob": ("spec", "mpiReplicaSpecs", "Worker", "template", "spec"),
        }.items():
            place: Any = self.manifests[kind]
            for step in path:
                place = place[step]
            place["comand"] = ["train"]
            with self.assertRaises(_WRONG, msg=kind):
                check(self.manifests[kind])

    def test_names_and_numbers_of_the_job_agree(self) -> None:
        service, job = self.manifests["Service"], self.manifests["Job"]
        name, spec = job["metadata"]["name"], job["spec"]
        pod, train = spec["template"]["spec"], container(spec)
        command = train["command"]
        self.assertEqual({"job-name": name}, service["spec"]["selector"])
        self.assertEqual(service["metadata"]["name"], pod["subdomain"])
        self.assertEqual(f"{name}-0.{pod['subdomain']}", option(command, "--master-addr"))
        self.assertEqual(spec["completions"], spec["parallelism"])
        self.assertEqual(spec["completions"], int(option(command, "--nnodes")))
        gpus = train["resources"]["limits"]["nvidia.com/gpu"]
        self.assertEqual(gpus, int(option(command, "--nproc-per-node")))
        grace = int(option(command, "--grace-period"))
        self.assertLess(grace, pod["terminationGracePeriodSeconds"])
        [secret] = [
            each["valueFrom"]["secretKeyRef"] for each in train["env"] if "valueFrom" in each
        ]
        self.assertIn(
            f"create secret generic {secret['name']} --from-literal={secret['key']}=", _PAGE
        )
        volumes = {each["name"] for each in pod["volumes"]}
        self.assertEqual({each["name"] for each in train["volumeMounts"]}, volumes)

    def test_rondarun_takes_the_command_of_each_pod_of_the_job(self) -> None:
        spec = self.manifests["Job"]["spec"]
        for index in range(spec["completions"]):
            out = self.dry_run(container(spec)["command"], JOB_COMPLETION_INDEX=str(index))
            self.assertIn(f"RONDA_RANK={2 * index} ", out)
            self.assertIn("RONDA_SIZE=8 ", out)

    def test_rondarun_takes_the_command_of_the_launcher_and_the_hosts_of_the_operator(self) -> None:
        spec = self.manifests["MPIJob"]["spec"]
        launcher, workers = (spec["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
        command, slots = container(launcher)["command"], spec["slotsPerWorker"]
        self.assertEqual(workers["replicas"] * slots, int(option(command, "-np")))
        hosts = [f"train-worker-{index}.train.default.svc" for index in range(workers["replicas"])]
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("".join(f"{host} slots={slots}\n" for host in hosts))
            file.flush()
            command[command.index("/etc/mpi/hostfile")] = file.name
            out = self.dry_run(command)
        for host in hosts:
            self.assertIn(host, out)

    def test_trainjob_has_a_gpu_for_each_process(self) -> None:
        trainer = self.manifests["TrainJob"]["spec"]["trainer"]
        gpus = trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"]
        self.assertEqual(trainer["numProcPerNode"], gpus)
