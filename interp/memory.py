"""How many models fit in memory together."""

import os

import torch

from interp.config import AttentionConfig, ClsConfig, MLPConfig, ModelConfig, TrainConfig


def memory_a_model(model: ModelConfig, cfg: TrainConfig, device: str = "cpu") -> int:
    """Estimated bytes that training one more model in a stack takes, in float32."""
    samples, n_ctx = cfg.n_train + cfg.n_valid, model.n_ctx
    if isinstance(model, AttentionConfig):
        heads = model.n_heads * (1 + model.d_value)
        parameters = 12 * n_ctx * (model.d_model + model.n_heads * model.d_value)
        if device == "cpu":  # bits as numbers and in patterns (`interp.packed`), while the inputs are int64
            return samples * (14 * n_ctx + 32) + parameters
        return 4 * (samples * (6 * n_ctx + 12 * heads * n_ctx) + 40 * heads * n_ctx**2) + parameters
    if isinstance(model, ClsConfig):
        if device == "cpu":  # inputs as int64 and in patterns (`interp.packed`); the kernel's scratch is a thread's
            weights = (n_ctx + 4 * model.n_heads * model.d_head + 2 * model.d_mlp + 9) * model.d_model
            return samples * (10 * n_ctx + 32) + 24 * weights
        width = model.n_heads * (1 + model.d_head) + 2 * model.d_model
        rows = 8 * (model.d_model + model.d_mlp + model.n_heads * (1 + model.d_head))
        return 4 * (samples * (6 * n_ctx + rows) + 12 * n_ctx * width + 12 * model.d_model * (width + model.d_mlp))
    width = model.d_mlp if isinstance(model, MLPConfig) else 1
    return 4 * (samples * (4 * n_ctx + 6 * width) + 8 * n_ctx * width)


def models_at_once(model: ModelConfig, cfg: TrainConfig, device: str = "cpu") -> int:
    """Models to train together: what a quarter of the free memory holds, at most 64 MLPs on a CPU, otherwise 512."""
    if device.startswith("cuda"):
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = 64 if isinstance(model, MLPConfig) and device == "cpu" else 512
    return max(1, min(most, free // 4 // memory_a_model(model, cfg, device)))
