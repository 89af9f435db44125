# The front door: reads config/config.yaml and the study it names, designs the points in Python before the DAG exists,
# and runs one rule a step. `snakemake --cores N` is the whole command; profiles/default is picked up by itself.
from snakemake.utils import min_version

min_version("9.20")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/trace.smk"
include: "workflow/rules/render.smk"
include: "workflow/rules/simulate.smk"
include: "workflow/rules/search.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/thresholds.smk"
include: "workflow/rules/select.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/published.smk"
include: "workflow/rules/paper.smk"


rule all:
    default_target: True
    input:
        expand("<results>/{study}/verdict.txt", study=FLOWS),
