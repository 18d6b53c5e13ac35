"""What a run trains, from its configuration: networks with their first weights, and the method around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from fpl.config.registry import method_class
from fpl.config.schema import RunConfig
from fpl.data.batches import UnlabeledImages
from fpl.data.images import Images
from fpl.data.splits import Split
from fpl.methods.base import Method
from fpl.models import SegmentationNetwork, WeightsReport, build_network, load_pretrained
from fpl.models.norm import fit_norms
from fpl.train.runtime import Context, Workers, compile_networks, seed_training


def build_method(
    config: RunConfig,
    split: Split,
    images: Images,
    context: Context,
    workers: Workers,
    weights_dir: Path | None,
    note: Callable[[str], None],
) -> tuple[Method, WeightsReport | None]:
    """Build the method of a run on its device, and seed what is drawn from here on.

    Args:
        config: The run.
        split: Lists of labeled and unlabeled images.
        images: The training images.
        context: The launcher's context.
        workers: All workers of the run.
        weights_dir: Where pretrained files are looked for first.
        note: Takes a line about the pretrained weights.

    Returns:
        The method, and where its networks' weights are from; None without pretrained ones.

    Raises:
        FplError: Pretrained weights are missing or do not fit.
    """
    report: WeightsReport | None = None

    def network() -> SegmentationNetwork:
        nonlocal report
        classes, device, model = config.data.num_classes, context.device, config.model
        built = build_network(model, classes, device_type=device.type, world_size=context.world_size)
        known, report = report, load_pretrained(built, model, weights_dir)
        if known is None and report is not None:
            note(report.summary())
        return built

    # Every rank draws the same weights from the same seed; only later is each rank given its own.
    torch.manual_seed(config.seed)
    method = method_class(config.method)(config, network, workers)
    fit_norms(method, config.model.norm, context.device.type, context.world_size)
    method.to(context.device)
    if config.train.channels_last:
        method.to(memory_format=torch.channels_last)
    if config.train.compile:
        networks = [module for module in method.modules() if isinstance(module, SegmentationNetwork)]
        compile_networks(networks, context.device, workers)
    method.attach(UnlabeledImages(config, split, images))
    seed_training(config)
    return method, report
