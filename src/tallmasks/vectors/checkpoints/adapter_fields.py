"""The fields of peft's adapter_config.json that are read here."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class AdapterFields(BaseModel):
    """Fields of adapter_config.json, with the types that peft writes."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    r: float | None = None
    lora_alpha: float | None = None
    rank_pattern: dict[str, float] | None = None
    alpha_pattern: dict[str, float] | None = None
    use_rslora: bool | None = None
    fan_in_fan_out: bool | None = None
    modules_to_save: list[str] | None = None
    base_model_name_or_path: str | None = None
