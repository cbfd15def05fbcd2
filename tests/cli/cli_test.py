#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program as a person meets it: exit codes, one-line errors, help, --dry-run, and one tiny run.

usage: cli_test.py PROGRAM TEST_DATA
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
TEST_DATA = pathlib.Path()
SECONDS = 120


def run(*words, folder=None, stdin="", **more):
    return subprocess.run([PROGRAM, *map(str, words)], cwd=folder, input=stdin, text=True, capture_output=True,
                          timeout=SECONDS, **more)


def byte_alphabet():
    """The character that stands for each byte in tokenizer.json."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def write_model(folder):
    """config.json of a small Qwen2 and a tokenizer with one token a byte."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": True, "eos_token_id": 256, "bos_token_id": 256}))
    vocab = {character: byte for byte, character in byte_alphabet().items()}
    end = {"id": 256, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))


class CliTest(unittest.TestCase):
    def refused(self, result, code, *parts):
        """One error line, the last on standard error, that begins with the command and has `parts`."""
        self.assertEqual(result.returncode, code, result.stderr)
        lines = [line for line in result.stderr.splitlines()
                 if line.startswith("lockstep") and ": note: " not in line and ": warning: " not in line]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertEqual(result.stderr.splitlines()[-1], lines[0])
        for part in parts:
            self.assertIn(part, lines[0])

    def accepted(self, result):
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        return result


class WithoutAModel(CliTest):
    def test_help_and_version(self):
        for words in ([], ["help"], ["--help"], ["train", "--help"], ["help", "train"], ["debug"], ["help", "debug"],
                      ["debug", "logits", "--help"], ["train", "--lr", "x", "--help"]):
            result = self.accepted(run(*words))
            self.assertIn("lockstep", result.stdout)
            self.assertEqual(result.stderr, "")
        self.assertIn("numerics version", self.accepted(run("--version")).stdout)

    def test_usage_errors(self):
        self.refused(run("trian"), 2, "trian: unknown command", "did you mean train?")
        self.refused(run("train", "--lr-decay-styl", "cosine"), 2,
                     "lockstep train: --lr-decay-styl: unknown option; did you mean --lr-decay-style?")
        self.refused(run("train"), 2, "is required")
        self.refused(run("train", "--fp16"), 2, "--profile")
        self.refused(run("generate", "--hf-checkpoint", "m", "--prompt", "a", "--bf16", "--profile", "fp32"), 2,
                     "--bf16", "fp32")
        self.refused(run("train", "--hf-checkpoint", "a\nb", "--prompt-data", "d", "--num-rollout", "1", "--run-dir",
                         "r", "--rm-type", "math"), 2)
        self.refused(run("verify", "a"), 2, "usage: lockstep verify A B")
        self.refused(run("inspect", "/no/such/path"), 2, "/no/such/path")
        self.refused(run("verify", "/no/such/a", "/no/such/b"), 2, "/no/such/a")
        self.refused(run("debug", "grade", "--rm-type", "gsm9k"), 2, "gsm9k", "gsm8k")
        self.refused(run("debug", "tc16", "/no/such/file"), 2, "/no/such/file")

    def test_nothing_is_written_before_the_configuration_is_right(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "run.toml").write_text("[training]\nlearning_rat = 1e-6\n")
            self.refused(run("train", "--config", "run.toml", "--run-dir", "r", folder=folder), 2,
                         "run.toml:2: training.learning_rat: unknown key; did you mean lr in [training]?")
            (path / "run.toml").write_text('lr = "1e-6"\n')
            self.refused(run("train", "--config", "run.toml", "--run-dir", "r", folder=folder), 2, "run.toml:1: lr: ")
            self.assertEqual(os.listdir(folder), ["run.toml"])

    def test_debug_grade_answers_every_line(self):
        good = '{"response": "#### 72", "label": "72"}'
        lines = f'{good}\nnot json\n{{"response": "#### 7", "label": "72"}}\n'
        result = run("debug", "grade", "--rm-type", "gsm8k", stdin=lines)
        self.refused(result, 1)
        rewards = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([rewards[0]["reward"], rewards[1]["line"], rewards[2]["reward"]], [1, 2, 0])
        self.assertEqual(self.accepted(run("debug", "grade", "--rm-type", "gsm8k", stdin=good + "\n")).stderr, "")

    def test_the_names_of_graders_in_help_are_taken(self):
        for command in ("train", "debug grade"):
            text = " ".join(run(*command.split(), "--help").stdout.split()).split("--rm-type NAME")[-1]
            names = re.findall(r"boxed_\w+", text)
            self.assertEqual(len(names), 3, text[:200])
            for name in names:
                self.accepted(run("debug", "grade", "--rm-type", name))
        for document in (TEST_DATA.parent.parent / "docs").glob("*.md"):
            self.assertNotIn("debug-grade", document.read_text(), document)

    @unittest.skipUnless(shutil.which("make"), "no make")
    def test_make_demo_builds_the_program_alone(self):
        result = subprocess.run(["make", "-n", "demo"], cwd=TEST_DATA.parent.parent, text=True, capture_output=True,
                                timeout=SECONDS, check=True)
        builds = [line for line in result.stdout.splitlines() if "cmake --build" in line]
        self.assertEqual(len(builds), 1, result.stdout)
        self.assertIn("--target lockstep", builds[0])

    def test_tc16(self):
        golden = TEST_DATA / "golden" / "tc16_h200.bin"
        self.assertEqual(self.accepted(run("debug", "tc16", golden)).stdout.splitlines()[-1],
                         "tc16: 208896 of 208896 equal")
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.bin"
            data = bytearray(golden.read_bytes())
            data[-1] ^= 1
            bad.write_bytes(data)
            result = run("debug", "tc16", bad)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stdout.splitlines()[-1], "tc16: 208895 of 208896 equal")
            bad.write_bytes(data[:1000])
            self.refused(run("debug", "tc16", bad), 2, "bad.bin")

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_a_failed_write_to_standard_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, "help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
        self.refused(result, 4, "standard output")

    def test_a_reader_that_goes_away_is_no_crash(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        result = subprocess.run([PROGRAM, "help"], stdout=write_end, stderr=subprocess.PIPE, text=True,
                                timeout=SECONDS)
        os.close(write_end)
        self.assertEqual((result.returncode, result.stderr), (4, ""))


class SmallModel(CliTest):
    """A folder with a small model, data and run.toml."""
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        write_model(cls.folder / "shape")
        rows = [{"question": f"{i} + {i}?", "answer": f"{i} + {i} = {2 * i}\n#### {2 * i}"} for i in range(8)]
        (cls.folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (cls.folder / "run.toml").write_text(
            'hf_checkpoint = "model"\n[data]\nprompt_data = "data.jsonl"\nrollout_shuffle = true\n'
            '[reward]\nrm_type = "gsm8k"\n[rollout]\nnum_rollout = 2\nrollout_batch_size = 2\n'
            'n_samples_per_prompt = 2\nrollout_max_response_len = 8\n[training]\nlr = 1e-4\n'
            '[eval]\neval_interval = 2\neval_prompt_data = ["test", "data.jsonl@[0:3]"]\n')
        made = cls.here("init", "--model-config", "shape/config.json", "--tokenizer", "shape", "--save", "model")
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def here(cls, *words, **more):
        return run(*words, folder=cls.folder, **more)


class WithASmallModel(SmallModel):
    def test_dry_run_prints_a_file_that_says_the_same(self):
        first = self.accepted(self.here("train", "--config", "run.toml", "--run-dir", "dry", "--dry-run")).stdout
        self.assertIn("lr = 1e-04", first)
        (self.folder / "again.toml").write_text(first)
        again = self.accepted(self.here("train", "--config", "again.toml", "--dry-run")).stdout
        self.assertEqual(again, first)
        self.assertFalse((self.folder / "dry").exists())
        for command in ("sft", "eval", "generate"):
            words = [command, "--config", "run.toml", "--dry-run"] + (["--run-dir", "dry"] if command == "sft" else [])
            text = self.accepted(self.here(*words)).stdout
            self.assertIn("[model]", text)
            self.assertIn("GiB  in all", text)
            self.refused(self.here(*words, "--hf-checkpoint", "none"), 2, "none")

    def test_memory_counts_evaluation_and_samples(self):
        def memory(*more):
            text = self.accepted(self.here("train", "--config", "run.toml", "--run-dir", "dry", "--dry-run", *more)).stdout
            lines = [line[1:].split(" GiB  ") for line in text.splitlines() if " GiB  " in line]
            return {name: float(size) for size, name in lines}
        few, many = memory(), memory("--eval-max-response-len", "400", "--n-samples-per-eval-prompt", "1000")
        self.assertGreater(many["in all"], few["in all"])
        self.assertIn("4 samples of a step", few)
        self.assertGreater(many["3000 samples of an evaluation"], 0.1)
        self.assertTrue([name for name in many if re.match(r"keys and values of 64 samples x 4\d\d tokens", name)], many)

    def test_a_run_and_its_identity(self):
        train = ["train", "--config", "run.toml", "--run-dir"]
        self.accepted(self.here(*train, "a", "--threads", "1"))
        start = json.loads((self.folder / "a/environment.jsonl").read_text())
        self.assertIn(start["device"], ("cpu", "cuda"))
        self.assertEqual("gpu" in start and "cuda_driver" in start, start["device"] == "cuda")
        self.refused(self.here(*train, "none", "--gpu-index", "1000"), 2, "--gpu-index 1000", "--device cpu")
        self.assertFalse((self.folder / "none").exists())
        self.accepted(self.here(*train, "b", "--threads", "2", "--max-running-requests", "3", "--admission",
                                "shuffle:5", "--prefix-cache", "off", "--chunked-prefill-size", "2",
                                "--max-tokens-per-gpu", "1", "--recompute-activations", "--isa", "scalar"))
        self.assertEqual((self.folder / "a/ledger.jsonl").read_bytes(), (self.folder / "b/ledger.jsonl").read_bytes())
        self.accepted(self.here("verify", "a", "b"))
        self.accepted(self.here(*train, "a"))  # finished: nothing left to do
        self.refused(self.here(*train, "a", "--lr", "2e-4"), 2, "lr", "--run-dir")
        self.refused(self.here(*train, "run.toml/a"), 2, "--run-dir", "run.toml is not a folder")
        self.accepted(self.here(*train, "c", "--rollout-seed", "7"))
        result = self.here("verify", "a", "c")
        self.assertEqual((result.returncode, result.stderr), (3, ""))
        self.assertIn("rollout_seed", result.stdout)
        self.accepted(self.here(*train, "d", "--num-rollout", "1"))
        result = self.here("verify", "a", "d")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.accepted(self.here("verify", "d", "a", "--prefix"))
        self.accepted(self.here(*train, "d"))  # carried on to two steps
        self.accepted(self.here("verify", "a", "d"))
        self.assertIn("ledger", self.accepted(self.here("inspect", "a")).stdout)
        result = self.here("verify", "a/iter_0000001", "model")
        self.assertNotEqual(result.returncode, 0)

    def test_sft_eval_generate(self):
        self.accepted(self.here("sft", "--config", "run.toml", "--run-dir", "warm", "--global-batch-size", "2"))
        result = self.accepted(self.here("eval", "--config", "run.toml", "--hf-checkpoint", "warm/iter_0000001"))
        self.assertEqual(len(result.stdout.splitlines()), 1)
        json.loads(result.stdout)
        result = self.accepted(self.here("generate", "--hf-checkpoint", "model", "--prompt", "1 + 1?", "2?",
                                         "--rollout-max-response-len", "4", "--n-samples-per-prompt", "2"))
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(len(lines), 4)
        self.assertNotIn("reward", lines[0])

    def test_out_is_checked_before_anything_is_sampled(self):
        sample = {"eval": ["eval", "--config", "run.toml"],
                  "generate": ["generate", "--hf-checkpoint", "model", "--prompt-data", "data.jsonl"]}
        before = (self.folder / "data.jsonl").read_bytes()
        for words in sample.values():
            for more in ([], ["--dry-run"]):
                self.refused(self.here(*words, *more, "--out", "nope/x"), 2, "--out nope/x", "nope")
                self.refused(self.here(*words, *more, "--out", "model"), 2, "--out model", "is a folder")
                self.refused(self.here(*words, *more, "--out", "./data.jsonl"), 2, "--out ./data.jsonl", "is read")
                for kept in ("run.toml", "model/config.json", "model/model.safetensors"):
                    self.refused(self.here(*words, *more, "--out", kept), 2, f"--out {kept}", "name another file")
        self.refused(self.here("debug", "logits", "--hf-checkpoint", "model", "--tokens", "none", "--out",
                               "model/model.safetensors"), 2, "--out model/model.safetensors")
        self.assertEqual((self.folder / "data.jsonl").read_bytes(), before)
        self.assertFalse((self.folder / "nope").exists())
        self.refused(self.here(*sample["generate"], "--rollout-stop-token-ids", "2000000"), 2, "2000000", "257")

    def test_a_stop_names_the_step(self):
        result = self.here("train", "--config", "run.toml", "--run-dir", "diverged", "--lr", "1000", "--num-rollout",
                           "20", "--disable-rewards-normalization", "--eval-interval", "0", "--rm-type", "dapo",
                           "--clip-grad", "0", "--weight-decay", "1000")
        self.refused(result, 4, "diverge")
        self.assertRegex(result.stderr.splitlines()[-1], r"^lockstep train: step \d+: ")

    def test_inputs_that_are_wrong(self):
        train = ["train", "--config", "run.toml", "--run-dir", "wrong"]
        self.refused(self.here(*train, "--prompt-data", "none.jsonl"), 2, "none.jsonl")
        (self.folder / "bad.jsonl").write_text('{"question": "1?", "answer": "#### 1"}\n{"question": \n')
        self.refused(self.here(*train, "--prompt-data", "bad.jsonl"), 2, "bad.jsonl:2")
        self.refused(self.here(*train, "--input-key", "prompt", "--label-key", "answer"), 2, "prompt", "question")
        self.refused(self.here(*train, "--hf-checkpoint", "none"), 2, "none")
        self.refused(self.here(*train, "--rm-type", "gsm9k"), 2, "gsm9k", "gsm8k")
        self.refused(self.here(*train, "--num-layers", "24"), 2, "--num-layers 24", "num_hidden_layers")
        self.refused(self.here(*train, "--isa", "avx1024"), 2, "--isa", "avx512")
        self.refused(self.here(*train, "--apply-chat-template"), 2, "template")
        self.refused(self.here(*train, "--max-total-tokens", "1"), 2, "--max-total-tokens 1", "at least 128")
        self.refused(self.here(*train, "--max-total-tokens", "192", "--eval-max-response-len", "300"), 2,
                     "--max-total-tokens 192", "at least 384")
        self.refused(self.here(*train, "--rollout-stop-token-ids", "257"), 2, "--rollout-stop-token-ids 257", "257")
        self.refused(self.here(*train, "--no-swiglu"), 2, "--no-swiglu", "silu")
        self.refused(self.here(*train, "--input-key", "qestion"), 2, "'qestion'", "'question'")
        self.assertFalse((self.folder / "wrong").exists())

    def test_options_without_effect_are_said_once(self):
        result = self.accepted(self.here("train", "--config", "run.toml", "--run-dir", "dry", "--dry-run", "--use-wandb",
                                         "--wandb-key", "secret", "--sglang-mem-fraction-static", "0.7"))
        notes = result.stderr.splitlines()
        self.assertEqual(len(notes), 3, result.stderr)
        self.assertNotIn("secret", result.stderr)
        for note in notes:
            self.assertRegex(note, r"^lockstep train: note: --[a-z-]+: no effect here: ")

    def test_debug_logits(self):
        self.refused(self.here("debug", "logits", "--hf-checkpoint", "model", "--tokens", "none", "--out", "o"), 2,
                     "none")


def checkpoints(folder):
    return sorted(path.name for path in folder.glob("iter_*"))


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def seal(checkpoint):
    """Writes SHA256SUMS anew, as one would who wants to hide a change."""
    names = sorted(path.name for path in checkpoint.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (checkpoint / "SHA256SUMS").write_text("".join(lines))


class RunFolders(SmallModel):
    """What a start does with the folder of a run that is there already."""
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = cls.start("base", 3, "--save-interval", "1")
        assert made.returncode == 0, made.stderr

    @classmethod
    def start(cls, name, steps, *more):
        return cls.here(*cls.words(name, steps), *more)

    @staticmethod
    def words(name, steps):
        return ["train", "--config", "run.toml", "--eval-interval", "1", "--run-dir", name, "--num-rollout", str(steps)]

    def copy(self, name):
        return pathlib.Path(shutil.copytree(self.folder / "base", self.folder / name))

    def unchanged(self, name, change, *parts, more=()):
        """A start on a copy of the run, after `change`, is refused and writes nothing."""
        run_dir = self.copy(name)
        change(run_dir)
        before = contents(run_dir)
        self.refused(self.start(name, 4, *more), 2, *parts)
        self.assertEqual(contents(run_dir), before)

    def test_two_starts_on_one_folder(self):
        with subprocess.Popen([PROGRAM, *self.words("long", 1000000)], cwd=self.folder, stderr=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL) as first:
            try:
                for _ in range(10 * SECONDS):
                    if (self.folder / "long/ledger.jsonl").exists():
                        break
                    time.sleep(0.1)
                self.refused(self.start("long", 4), 2, "--run-dir long", "another start")
                self.refused(self.start("beside", 4, "--save", "long"), 2, "--save long", "another start")
                self.assertFalse((self.folder / "beside").exists())
                self.assertIsNone(first.poll())
            finally:
                first.kill()
        self.accepted(self.start("long", 1))

    def test_saves_at_the_interval(self):
        self.accepted(self.start("interval", 5, "--save-interval", "2"))
        self.assertEqual(checkpoints(self.folder / "interval"), ["iter_0000001", "iter_0000003", "iter_0000004"])

    def test_a_checkpoint_under_another_name(self):
        self.unchanged("renamed", lambda d: shutil.copytree(d / "iter_0000001", d / "iter_0000009"),
                       "iter_0000009/state.json", "step 1", "step 9")

    def test_a_changed_state(self):
        for key, value in (("step", 1), ("optimizer_step", 400), ("ledger_records", 0), ("ledger_records", 6),
                           ("ledger_sha256", "0" * 64)):
            def change(run_dir, key=key, value=value):
                path = run_dir / "iter_0000002/state.json"
                path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
                seal(path.parent)
            with self.subTest(key=key, value=value):
                self.unchanged(f"state_{key}_{str(value)[:3]}", change, "iter_0000002/state.json")

    def test_changed_tensors_and_config(self):
        for name in ("optimizer.safetensors", "model.safetensors", "config.json"):
            def change(run_dir, name=name):
                path = run_dir / "iter_0000002" / name
                data = bytearray(path.read_bytes())
                data[-1] ^= 1
                path.write_bytes(b"{}" if name == "config.json" else data)
                seal(path.parent)
            with self.subTest(name=name):
                self.unchanged("changed_" + name, change, "iter_0000002/" + name)

    def test_records_shorter_than_the_checkpoint(self):
        def cut(name):
            def change(run_dir):
                lines = (run_dir / name).read_text().splitlines(keepends=True)
                (run_dir / name).write_text("".join(lines[:-5]))
            return change
        self.unchanged("short_ledger", cut("ledger.jsonl"), "short_ledger/ledger.jsonl", "restore it")
        self.unchanged("short_metrics", cut("metrics.jsonl"), "short_metrics/metrics.jsonl", "restore it")
        self.unchanged("no_metrics", lambda d: (d / "metrics.jsonl").unlink(), "no_metrics/metrics.jsonl: has 0 lines")

    def test_missing_samples_are_said(self):
        run_dir = self.copy("no_samples")
        (run_dir / "samples/rollout_0000001.jsonl").unlink()
        (run_dir / "samples/eval_test_start.jsonl").unlink()
        stderr = self.accepted(self.start("no_samples", 4)).stderr
        self.assertIn("2 files", stderr)
        self.assertIn("eval_test_start.jsonl", stderr)
        self.copy("all_samples")
        self.assertNotIn("missing", self.accepted(self.start("all_samples", 4)).stderr)

    def test_load_without_a_checkpoint(self):
        self.refused(self.start("unloaded", 4, "--load", "base/iter_0000002/"), 2, "--load base/iter_0000002/: is one",
                     ": --load base")
        self.refused(self.start("unloaded", 4, "--load", "model"), 2, "--load model", "holds no checkpoint")
        run_dir = self.copy("all_damaged")
        for checkpoint in run_dir.glob("iter_*"):
            (checkpoint / "config.json").write_text("")
        self.refused(self.start("unloaded", 4, "--load", "all_damaged"), 2, "holds no complete checkpoint")
        self.assertFalse((self.folder / "unloaded").exists())

    def test_a_ledger_without_its_checkpoints_is_not_cut(self):
        def lose(run_dir):
            for checkpoint in run_dir.glob("iter_*"):
                shutil.rmtree(checkpoint)
        self.unchanged("lost", lose, "--run-dir lost", "step 3", "no complete checkpoint", "after step 2",
                       more=("--save-interval", "1"))

        def damage(run_dir):
            for checkpoint in run_dir.glob("iter_*"):
                (checkpoint / "config.json").write_text("")
        self.unchanged("broken", damage, "--run-dir broken", "no complete checkpoint", more=("--save-interval", "2"))
        # Killed before the first one was due: begins again, and says so.
        lose(self.copy("early"))
        self.assertIn("records are made again", self.accepted(self.start("early", 3, "--save-interval", "3")).stderr)
        self.assertEqual((self.folder / "early/ledger.jsonl").read_bytes(), (self.folder / "base/ledger.jsonl").read_bytes())

    def adopted(self, name):
        """The history of base, and nothing besides."""
        self.accepted(self.start(name, 3, "--load", "base"))
        base, copy = self.folder / "base", self.folder / name
        self.assertEqual((copy / "ledger.jsonl").read_bytes(), (base / "ledger.jsonl").read_bytes())
        self.assertEqual(contents(copy / "samples"), contents(base / "samples"))
        lines = [len((self.folder / run / "metrics.jsonl").read_text().splitlines()) for run in ("base", name)]
        self.assertEqual(lines[0], lines[1])
        self.assertEqual(list((self.folder / name).rglob("*.tmp")), [])

    def test_a_history_half_taken_over(self):
        source = self.copy("source")
        sample = source / "samples/rollout_0000002.jsonl"
        text = sample.read_bytes()
        sample.unlink()
        sample.mkdir()
        result = self.start("half", 3, "--load", "source")
        self.assertNotEqual(result.returncode, 0)
        self.assertFalse((self.folder / "half/ledger.jsonl").exists())
        sample.rmdir()
        sample.write_bytes(text)
        (self.folder / "half/ledger.jsonl.tmp").write_text("{")
        (self.folder / "half/samples/rollout_0000001.jsonl.tmp").write_text("{")
        self.adopted("half")

    @unittest.skipUnless(shutil.which("strace"), "no strace")
    def test_killed_while_the_history_is_taken_over(self):
        for when in range(1, 30):
            name = f"killed_{when}"
            result = subprocess.run(["strace", "-f", "-o", "/dev/null", "-e", "trace=rename", "-e",
                                     f"inject=rename:signal=KILL:when={when}", PROGRAM, *self.words(name, 3), "--load",
                                     "base"], cwd=self.folder, capture_output=True, text=True, timeout=SECONDS,
                                    env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # not under strace
            if when == 1 and not (self.folder / name).exists():
                self.skipTest("strace may not trace here: " + result.stderr)
            with self.subTest(when=when):
                self.adopted(name)
            if result.returncode == 0:
                return
        self.fail("never came to its end")

    def test_a_damaged_checkpoint_is_said_once(self):
        run_dir = self.copy("damaged")
        (run_dir / "iter_0000002/config.json").write_text("{}")
        for more in ((), ("--save", "damaged/.")):
            stderr = self.accepted(self.start("damaged", 2, *more)).stderr
            self.assertEqual(stderr.count("is passed over"), 1, stderr)

    def test_one_checkpoint_too_many_is_removed(self):
        run_dir = self.copy("retained")
        self.accepted(self.start("retained", 3, "--save-retain", "2"))
        self.assertEqual(checkpoints(run_dir), ["iter_0000001", "iter_0000002"])
        # A damaged one behind that of the run counts for nothing.
        (run_dir / "iter_0000002/config.json").write_text("{}")
        self.accepted(self.start("retained", 2, "--save-retain", "1"))
        self.assertEqual(checkpoints(run_dir), ["iter_0000001", "iter_0000002"])


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
    TEST_DATA = pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
