"""Option names of stock SGLang by release, from its real parsers: tests/builds/make_reference.py."""

CAME = {
    "0.4.6": """
        allow-auto-truncate api-key attention-backend base-gpu-id chat-template chunked-prefill-size completion-template
        constrained-json-whitespace-pattern context-length cpu-offload-gb cuda-graph-bs cuda-graph-max-bs
        data-parallel-size debug-tensor-dump-inject debug-tensor-dump-input-file debug-tensor-dump-output-folder
        decode-log-interval deepep-mode delete-ckpt-after-loading device disable-chunked-prefix-cache disable-cuda-graph
        disable-cuda-graph-padding disable-custom-all-reduce disable-fast-image-processor disable-outlines-disk-cache
        disable-overlap-schedule disable-radix-cache disaggregation-bootstrap-port disaggregation-ib-device
        disaggregation-mode disaggregation-transfer-backend dist-init-addr dist-timeout download-dir dp-size
        ds-channel-config-path ds-heavy-channel-num ds-heavy-channel-type ds-heavy-token-num ds-sparse-decode-threshold
        dtype enable-cache-report enable-custom-logit-processor enable-deepep-moe enable-double-sparsity
        enable-dp-attention enable-ep-moe enable-flashinfer-mla enable-flashmla enable-hierarchical-cache
        enable-memory-saver enable-metrics enable-mixed-chunk enable-multimodal enable-nan-detection enable-nccl-nvls
        enable-p2p-check enable-tokenizer-batch-encode enable-torch-compile ep-size expert-parallel-size
        file-storage-path flashinfer-mla-disable-ragged gpu-id-step grammar-backend help hicache-ratio hicache-size
        hicache-write-policy host is-embedding json-model-override-args kv-cache-dtype load-balance-method load-format
        log-level log-level-http log-requests log-requests-level lora-backend lora-paths max-loras-per-batch
        max-prefill-tokens max-running-requests max-total-tokens mem-fraction-static model-path moe-dense-tp-size
        n-share-experts-fusion nccl-init-addr nnodes node-rank num-continuous-decode-steps page-size port quantization
        quantization-param-path random-seed reasoning-parser revision sampling-backend schedule-conservativeness
        schedule-policy served-model-name show-time-cost skip-tokenizer-init speculative-accept-threshold-acc
        speculative-accept-threshold-single speculative-algorithm speculative-draft-model-path speculative-eagle-topk
        speculative-num-draft-tokens speculative-num-steps speculative-token-map stream-interval stream-output
        tensor-parallel-size tokenizer-mode tokenizer-path tool-call-parser torch-compile-max-bs torchao-config tp-size
        triton-attention-num-kv-splits triton-attention-reduce-in-fp32 trust-remote-code warmups watchdog-timeout
    """,
    "0.5.5": """
        abort-on-priority-when-disabled bucket-e2e-request-latency bucket-inter-token-latency bucket-time-to-first-token
        checkpoint-engine-wait-weights-before-ready collect-tokens-histogram config
        constrained-json-disable-any-whitespace crash-dump-folder custom-weight-loader debug-tensor-dump-layers
        decode-attention-backend decrypted-config-file decrypted-draft-config-file deepep-config
        disable-flashinfer-cutlass-moe-fp4-allgather disable-hybrid-swa-memory disable-shared-experts-fusion
        disable-tokenizer-batch-decode disaggregation-decode-dp disaggregation-decode-enable-offload-kvcache
        disaggregation-decode-polling-interval disaggregation-decode-tp disaggregation-prefill-pp
        dynamic-batch-tokenizer-batch-size dynamic-batch-tokenizer-batch-timeout elastic-ep-backend enable-cudagraph-gc
        enable-deterministic-inference enable-dp-lm-head enable-dynamic-batch-tokenizer enable-eplb
        enable-expert-distribution-metrics enable-flashinfer-allreduce-fusion enable-fp32-lm-head enable-lmcache
        enable-lora enable-metrics-for-all-schedulers enable-mscclpp enable-pdmux enable-piecewise-cuda-graph
        enable-priority-scheduling enable-profile-cuda-graph enable-request-time-stats-logging
        enable-return-hidden-states enable-single-batch-overlap enable-symm-mem enable-torch-symm-mem enable-trace
        enable-two-batch-overlap enable-weights-cpu-backup ep ep-dispatch-algorithm ep-num-redundant-experts
        eplb-algorithm eplb-min-rebalancing-utilization-threshold eplb-rebalance-layers-per-chunk
        eplb-rebalance-num-iterations expert-distribution-recorder-buffer-size expert-distribution-recorder-mode
        flashinfer-mxfp4-moe-precision gc-warning-threshold-secs generation-tokens-buckets grpc-mode hicache-io-backend
        hicache-mem-layout hicache-storage-backend hicache-storage-backend-extra-config hicache-storage-prefetch-policy
        hybrid-kvcache-ratio init-expert-location keep-mm-feature-on-device kt-amx-method kt-amx-weight-path kt-cpuinfer
        kt-max-deferred-experts-per-token kt-num-gpu-experts kt-threadpool-count kv-events-config load-watch-interval
        lora-eviction-policy lora-target-modules mamba-full-memory-ratio mamba-ssm-dtype max-loaded-loras
        max-lora-chunk-size max-lora-rank max-mamba-cache-size max-queued-requests mm-attention-backend
        mm-max-concurrent-calls mm-per-request-timeout model model-impl model-loader-extra-config
        modelopt-checkpoint-restore-path modelopt-checkpoint-save-path modelopt-export-path modelopt-quant
        moe-a2a-backend moe-runner-backend mooncake-ib-device multi-item-scoring-delimiter nccl-port nsa-decode-backend
        nsa-prefill-backend num-reserved-decode-tokens numa-node offload-group-size offload-mode offload-num-in-group
        offload-prefetch-step otlp-traces-endpoint pdmux-config-path piecewise-cuda-graph-compiler
        piecewise-cuda-graph-max-tokens piecewise-cuda-graph-tokens pipeline-parallel-size pp-max-micro-batch-size
        pp-size preferred-sampling-params prefill-attention-backend prefill-round-robin-balance
        priority-scheduling-preemption-threshold prompt-tokens-buckets quantize-and-serve radix-eviction-policy
        remote-instance-weight-loader-seed-instance-ip remote-instance-weight-loader-seed-instance-service-port
        remote-instance-weight-loader-send-weights-group-ports rl-on-policy-target sampling-defaults
        schedule-low-priority-values-first scheduler-recv-interval skip-server-warmup sleep-on-idle sm-group-num
        speculative-attention-mode speculative-draft-load-format speculative-draft-model
        speculative-draft-model-revision speculative-moe-runner-backend speculative-ngram-branch-length
        speculative-ngram-capacity speculative-ngram-match-type speculative-ngram-max-bfs-breadth
        speculative-ngram-max-match-window-size speculative-ngram-min-bfs-breadth
        speculative-ngram-min-match-window-size swa-full-tokens-ratio tbo-token-distribution-threshold
        tokenizer-metrics-allowed-custom-labels tokenizer-metrics-custom-labels-header tokenizer-worker-num tool-server
        triton-attention-split-tile-size weight-loader-disable-mmap weight-version
    """,
    "0.5.9": """
        admin-api-key attention-context-parallel-size attn-cp-size custom-sigquit-handler disable-flashinfer-autotune
        disable-hicache-numa-detect dllm-algorithm dllm-algorithm-config enable-attn-tp-input-scattered
        enable-broadcast-mm-inputs-process enable-draft-weights-cpu-backup enable-dynamic-chunking
        enable-fused-qk-norm-rope enable-layerwise-nvtx-marker enable-lora-overlap-loading enable-multi-layer-eagle
        enable-nsa-prefill-context-parallel enable-precise-embedding-interpolation enable-prefill-delayer
        enable-prefix-mm-cache enable-return-routed-experts enable-torch-compile-debug-mode encoder-only
        encoder-transfer-backend encoder-urls export-metrics-to-file export-metrics-to-file-dir extra-metric-labels
        fastapi-root-path forward-hooks fp4-gemm-backend fp8-gemm-backend hf-chat-template-name
        hierarchical-sparse-attention-extra-config kt-method kt-weight-path language-only limit-mm-data-per-request
        log-requests-format log-requests-target mamba-backend mamba-scheduler-strategy mamba-track-interval
        mm-enable-dp-encoder mm-process-config model-checksum moe-data-parallel-size moe-dp-size nsa-prefill-cp-mode
        pp-async-batch-depth prefill-delayer-forward-passes-buckets prefill-delayer-max-delay-passes
        prefill-delayer-token-usage-low-watermark prefill-delayer-wait-seconds-buckets prefill-max-requests
        remote-instance-weight-loader-backend remote-instance-weight-loader-start-seed-via-transfer-engine
        rl-quant-profile soft-watchdog-timeout speculative-draft-attention-backend speculative-draft-model-quantization
        speculative-moe-a2a-backend uvicorn-access-log-exclude-prefixes
    """,
    "0.5.12": """
        batch-notify-size debug-cuda-graph default-priority-value detokenizer-worker-num disable-piecewise-cuda-graph
        disable-priority-preemption disaggregation-decode-enable-radix-cache elastic-ep-rejoin
        enable-adaptive-dispatch-to-encoder enable-aiter-allreduce-fusion enable-breakable-cuda-graph
        enable-deepep-waterfill enable-dp-attention-local-control-broadcast enable-elastic-expert-backup
        enable-forward-pass-metrics enable-fused-moe-sum-all-reduce enable-hisparse enable-http2 enable-mfu-metrics
        enable-mis enable-mm-global-cache enable-prefill-context-parallel enable-quant-communications
        enable-return-indexer-topk enable-ssl-refresh enable-streaming-session enable-strict-thinking
        enforce-disable-flashinfer-allreduce-fusion enforce-piecewise-cuda-graph enforce-shared-experts-fusion
        engine-info-bootstrap-port experts-shared-outer-loras forward-pass-metrics-ipc-name
        forward-pass-metrics-worker-id gc-threshold grpc-http-sidecar-port hisparse-config incremental-streaming-output
        linear-attn-backend linear-attn-decode-backend linear-attn-prefill-backend lora-drain-wait-threshold
        lora-strict-loading lora-use-virtual-experts model-config-parser modelexpress-config msprobe-dump-config
        no-experts-shared-outer-loras no-lora-strict-loading no-record-nolora-graph pre-warm-nccl prefill-cp-mode
        prefill-delayer-max-delay-ms prefill-delayer-queue-min-ratio prefill-only-disable-kv-cache record-nolora-graph
        speculative-adaptive speculative-adaptive-config speculative-dflash-block-size
        speculative-dflash-draft-window-size speculative-draft-window-size speculative-ngram-external-corpus-max-tokens
        speculative-ngram-external-corpus-path speculative-ngram-external-sam-budget speculative-ngram-max-trie-depth
        speculative-skip-dp-mlp-sync ssl-ca-certs ssl-certfile ssl-keyfile ssl-keyfile-password
        stream-response-default-include-usage strip-thinking-cache tokenizer-backend use-ray
        weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints weight-loader-prefetch-num-threads
    """,
    "0.5.15": """
        asr-max-buffer-seconds asr-max-concurrent-sessions bf16-gemm-backend cp-strategy cuda-graph-backend-decode
        cuda-graph-backend-prefill cuda-graph-bs-decode cuda-graph-bs-prefill cuda-graph-config cuda-graph-max-bs-decode
        cuda-graph-max-bs-prefill cuda-graph-tc-compiler dcp-size decode-context-parallel-size
        decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints decoupled-spec-rank decoupled-spec-role
        deepep-dispatcher-output-dtype disable-attn-tp-gather disable-decode-cuda-graph disable-prefill-cuda-graph
        disaggregation-decode-extra-slots dsa-decode-backend dsa-paged-mqa-logits-backend dsa-prefill-backend
        dsa-prefill-cp-mode dsa-topk-backend enable-deepseek-v4-fp4-indexer enable-dsa-prefill-context-parallel
        enable-int8-mamba-checkpoint enable-linear-replayssm enable-mamba-cache-stochastic-rounding
        enable-page-major-kv-layout enable-prefill-cp enable-session-radix-cache enable-tf32-matmul
        enable-unified-memory encoder-bootstrap-port encoder-register-urls flashinfer-allreduce-fusion-backend
        int8-mamba-ckpt-size kv-canary kv-canary-real-data kv-canary-sweep-interval linear-replayssm-cache-len
        lmcache-config-file load-snapshot-publish-interval mamba-cache-philox-rounds mamba-radix-cache-strategy
        min-free-slots-delay optimistic-prefill-retries radix-cache-backend spec-trace-dir
        speculative-use-rejection-sampling trace-modules
    """,
    "0.5.20": """
        allowed-media-domains c128-page-size dcp-comm-backend dcp-replicate-q-proj deepep-v2-mode
        default-chat-template-kwargs disaggregation-decode-retraction-backup dllm-fdfo dsv4-attn-backend
        dsv4-prefill-backend dwdp-size elastic-ep-initial-size elastic-ep-join-mode elastic-ep-join-rank-offset
        elastic-ep-scale-timeout enable-cp-decode-attn-tp enable-dense-mlp-attn-tp enable-dsa-cache-layer-split
        enable-flexkv enable-layernorm-sp enable-lean-attention enable-linear-replayssm-spec enable-response-store
        enable-scattered-sconv enable-shared-experts-attn-tp enable-tp-lm-head-all-to-all
        enable-unified-cache-external-linker enable-w4a4-mxfp4-megamoe enable-waterfill expert-balancedness-report-mode
        flashinfer-a2a-dispatch-type flashinfer-autotune-skip-ops flexkv-config-file fuseep-mode gated-launch-port
        grpc-port hicache-host-memory-mode hicache-storage-prefetch-retry-max-attempts
        hicache-storage-prefetch-retry-poll-interval http2-initial-connection-window-size http2-max-concurrent-streams
        image-processor-backend language-model-only linear-attn-verify-backend load-publish-endpoint
        mamba-max-states-per-path max-ep-size media-url-max-file-size-mb mlx-enable-sampling mm-feature-transport
        mm-global-cache-backend mm-io-worker-num mm-preprocess-cache-size-mb mm-processor-worker-num
        no-dcp-replicate-q-proj no-dllm-fdfo no-enable-tp-lm-head-all-to-all no-ple-offload-embedding
        optimistic-prefill-attempts ple-offload-backend ple-offload-dir ple-offload-embedding prefill-decode-interval
        radix-eviction-policy-config retraction-policy return-hidden-states-mode return-input-ids return-output-ids
        sampling-mask-max-tokens sidecar sidecar-args smg-grpc-mode smg-http-sidecar-port
        speculative-domino-candidate-pool-size speculative-draft-kv-cache-dtype speculative-dsa-topk-backend
        speculative-dspark-align-verify-tokens-to-graph-tier speculative-dspark-block-size
        speculative-dspark-confidence-sts-path speculative-dspark-sps-table-path startup-weight-load-mode
        trust-mm-content-hashes unified-cache-external-linker-backend uno-lora-path weight-cache-mode
        weight-cache-socket weight-cache-timeout
    """,
    "0.5.23": """
        attention-data-parallel-size attn-dp-size boundary-reduction constrained-json-max-whitespace-cnt context-bucket
        cuda-graph-max-seq-len-prefill cuda-graph-prefill-max-context disable-aiter-allreduce-fusion-in-decode
        disable-aiter-allreduce-fusion-in-prefill disaggregation-decode-allocation-policy
        disaggregation-decode-host-receive-threshold disaggregation-enable-kv-checksum dsa-triton-union
        enable-amd-monokernel enable-decoder-swa-bounded-replay enable-dsa-fused-indexer
        enable-encoder-swa-bounded-replay enable-hicache enable-http-worker-reuseport enable-kv-cache-sharding
        enable-linker-mla-dedup enable-megamoe-for-layernorm-sp enable-nvidia-megakernel enable-paged-experts
        enable-pd-role-switch enable-return-aux-hidden-states enable-watermark grpc-response-timeout-secs
        hicache-host-memory-fraction monokernel-backend no-enable-decoder-swa-bounded-replay no-enable-dsa-fused-indexer
        no-enable-fused-qk-norm-rope no-enable-tf32-matmul no-mm-enable-dp-encoder
        no-speculative-enable-w4a4-mxfp4-megamoe otlp-service-name paged-experts-num-resident
        prefill-decode-interval-min-bs prefill-kv-cache-dequant-dtype qsa-indexer-dtype
        return-aux-hidden-state-layer-ids shared-experts-tp-size speculative-draft-sink-size
        speculative-enable-w4a4-mxfp4-megamoe speculative-use-block-verification swa-prefix-tails
        trust-request-chat-template unified-cache-external-linker-config watermark-config
    """,
}
"""release -> names first seen in that release, of the releases that were read."""

GONE = {
    "0.4.6": """
    """,
    "0.5.5": """
        enable-deepep-moe enable-ep-moe enable-flashinfer-mla enable-flashmla n-share-experts-fusion
    """,
    "0.5.9": """
        kt-amx-method kt-amx-weight-path load-watch-interval
    """,
    "0.5.12": """
        disable-hicache-numa-detect disaggregation-decode-dp disaggregation-decode-tp disaggregation-prefill-pp
        ds-channel-config-path ds-heavy-channel-num ds-heavy-channel-type ds-heavy-token-num ds-sparse-decode-threshold
        enable-double-sparsity mm-max-concurrent-calls mm-per-request-timeout multi-item-scoring-delimiter
        speculative-ngram-branch-length speculative-ngram-max-match-window-size speculative-ngram-min-match-window-size
    """,
    "0.5.15": """
        custom-sigquit-handler debug-tensor-dump-inject enable-nan-detection enable-piecewise-cuda-graph
        hybrid-kvcache-ratio no-record-nolora-graph record-nolora-graph
    """,
    "0.5.20": """
        collect-tokens-histogram cuda-graph-bs cuda-graph-max-bs disable-piecewise-cuda-graph dsa-prefill-cp-mode
        enable-breakable-cuda-graph enable-deepep-waterfill enable-dsa-prefill-context-parallel
        enable-expert-distribution-metrics enable-nsa-prefill-context-parallel enable-prefill-context-parallel
        enforce-piecewise-cuda-graph mamba-scheduler-strategy nsa-decode-backend nsa-prefill-backend nsa-prefill-cp-mode
        optimistic-prefill-retries piecewise-cuda-graph-compiler piecewise-cuda-graph-max-tokens
        piecewise-cuda-graph-tokens prefill-cp-mode prefill-round-robin-balance speculative-dflash-draft-window-size
        stream-output torchao-config
    """,
    "0.5.23": """
        cuda-graph-tc-compiler elastic-ep-rejoin keep-mm-feature-on-device speculative-skip-dp-mlp-sync
    """,
}
"""release -> names no longer in that release, of the releases that were read."""
