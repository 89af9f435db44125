# `snakemake paper`: the paper's experiment on open numbers, every study of config/studies/paper through the same rules as any
# other, and how their speedups are distributed.
rule paper:
    input:
        "<results>/paper/paper.md",


rule experiment:
    input:
        speedups=lambda wildcards: expand(
            "<results>/{study}/speedups.csv", study=grouped_studies("paper")
        ),
        reports=lambda wildcards: expand(
            "<results>/{study}/report.html", study=grouped_studies("paper")
        ),
    output:
        table="<results>/paper/paper.csv",
        text="<results>/paper/paper.md",
    log:
        "<results>/paper/logs/experiment.log",
    benchmark:
        "<results>/paper/benchmarks/experiment.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        digest=package_digest(*STEP_CODE["paper"]),
    shell:
        "scaleacross paper {input.speedups} --output {output.table} --markdown {output.text} > {log} 2>&1"
