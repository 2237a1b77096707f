"""`ddtree-wrapper`: a small server over the decoder, with SGLang's endpoints, log lines and figures."""
