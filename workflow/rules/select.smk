# The decision: the best design in every environment, and by how much it beats each baseline.
rule select:
    input:
        table="<results>/{study}/results.csv",
        study="<results>/{study}/design/study.json",
        certificate=lambda wildcards: FLOWS[wildcards.study].certificate_files,
        thresholds="<results>/{study}/thresholds.yaml",
    output:
        optimum="<results>/{study}/optimum.yaml",
        speedups="<results>/{study}/speedups.csv",
        interplay="<results>/{study}/interplay.csv",
        pareto="<results>/{study}/pareto.csv",
    log:
        "<results>/{study}/logs/select.log",
    benchmark:
        "<results>/{study}/benchmarks/select.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["select"],
        certificate=lambda wildcards, input: (
            f"--certificate {input.certificate}" if input.certificate else ""
        ),
    shell:
        "scaleacross select {input.table} --study {input.study}"
        " {params.certificate} --thresholds {input.thresholds} --optimum {output.optimum} --speedups {output.speedups}"
        " --interplay {output.interplay} --pareto {output.pareto} > {log} 2>&1"
