# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI in a Python of its own: one pipeline over a GGUF file, which takes a prompt whenever it is told to.

Prints a JSON line when the model is loaded, then one for every line on stdin: seconds to the first token, and the
tokens that follow the prompt. openvino.py starts it, with -I: in this folder the name `openvino` is that script.
"""

import argparse
import json
import pathlib
import sys

import openvino
import openvino_genai

CACHE_GB = 1  # 8,192 tokens of a small model take a tenth of it
PROPERTIES = ("INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION", "DYNAMIC_QUANTIZATION_GROUP_SIZE")


def scheduler(args):
    config = openvino_genai.SchedulerConfig()
    config.max_num_batched_tokens, config.cache_size = args.batch, CACHE_GB
    config.enable_prefix_caching = False  # or the second run of a prompt would find it read
    config.use_sparse_attention = args.threshold > 0
    if args.threshold > 0:
        config.sparse_attention_config = openvino_genai.SparseAttentionConfig(
            mode=openvino_genai.SparseAttentionMode.XATTENTION, xattention_threshold=args.threshold)
    return config


def tensor_of(values):
    """[1, len(values)] i64."""
    out = openvino.Tensor(openvino.Type.i64, openvino.Shape([1, len(values)]))
    out.data[0] = values
    return out


def first_token(pipeline, tokens, following):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = following, True, False
    config.apply_chat_template = False
    prompt = openvino_genai.TokenizedInputs(tensor_of(tokens), tensor_of([1] * len(tokens)))
    done = pipeline.generate(prompt, config)
    return {"seconds": done.perf_metrics.get_ttft().mean / 1000, "next": list(done.tokens[0])}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", required=True)
    parser.add_argument("--prompt", type=pathlib.Path, required=True, help="a JSON list of token ids")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="tokens in one forward pass")
    parser.add_argument("--threshold", type=float, default=0, help="of XAttention; 0: dense")
    parser.add_argument("--following", type=int, required=True, help="tokens to generate after the prompt")
    args = parser.parse_args()
    tokens = json.loads(args.prompt.read_text())
    pipeline = openvino_genai.LLMPipeline(args.file, "CPU", scheduler_config=scheduler(args),
                                          INFERENCE_NUM_THREADS=args.threads)
    core = openvino.Core()
    said = {name: core.get_property("CPU", name) for name in PROPERTIES}
    print(json.dumps({"version": openvino_genai.get_version(), "properties": {
        name: value.get_type_name() if hasattr(value, "get_type_name") else value for name, value in said.items()}}),
        flush=True)
    for line in sys.stdin:
        print(json.dumps(first_token(pipeline, tokens[:json.loads(line)["tokens"]], args.following)), flush=True)


if __name__ == "__main__":
    main()
