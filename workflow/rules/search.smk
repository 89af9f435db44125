# Certified search (`search: certified`): bounds points, simulates those that could win, and proves that no other does. One job
# on all cores that replaces trace, render and simulate of an exhaustive study; the steps after it are the same.
rule search:
    input:
        study="<results>/{study}/design/study.json",
    output:
        points="<results>/{study}/search/points.csv",
        rows="<results>/{study}/search/rows.jsonl",
        plans="<results>/{study}/search/plans.csv.gz",
        certificate="<results>/{study}/certificate.yaml",
    log:
        "<results>/{study}/logs/search.log",
    benchmark:
        "<results>/{study}/benchmarks/search.tsv"
    conda:
        "../envs/scaleacross.yaml"
    threads: workflow.cores
    resources:
        mem_mb=8000,
        runtime=600,
    params:
        digest=lambda wildcards: FLOWS[wildcards.study].digests["search"],
        binary=lambda wildcards: FLOWS[wildcards.study].astra_sim_option,
    shell:
        "scaleacross search {input.study} {params.binary} --cores {threads}"
        " --points {output.points} --rows {output.rows} --plans {output.plans} --certificate {output.certificate}"
        " > {log} 2> >(tee -a {log} >&2)"
