"""Whether an OpenAI-compatible endpoint can serve training."""
