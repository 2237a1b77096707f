"""Why a start failed or a service is ill: lines, unit changes and probe samples in, one finding with evidence out."""
