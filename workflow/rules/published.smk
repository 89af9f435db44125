# `snakemake published`: every study of config/studies/published through the same rules as any other, beside what was measured.
rule published:
    input:
        "<results>/published/validation.csv",


rule validation:
    input:
        tables=lambda wildcards: expand(
            "<results>/{study}/results.csv", study=published_studies()
        ),
        designs=lambda wildcards: expand(
            "<results>/{study}/design/study.json", study=published_studies()
        ),
    output:
        table="<results>/published/validation.csv",
        text="<results>/published/validation.md",
        figures=multiext("<results>/published/validation", ".svg", ".png"),
    log:
        "<results>/published/logs/validation.log",
    benchmark:
        "<results>/published/benchmarks/validation.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        digest=package_digest(*STEP_CODE["published"]),
    shell:
        "scaleacross published {input.tables} --output {output.table} --markdown {output.text}"
        " --figure {output.figures} > {log} 2>&1"
