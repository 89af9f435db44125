# What every rule needs: the designed studies, where their files are, and what a name in a path may look like.
from scaleacross.files import package_digest
from scaleacross.study.flow import (
    STEP_CODE,
    command_on_path,
    grouped_studies,
    prepare_for_snakemake,
    published_studies,
)

command_on_path()

# Study name -> Flow: its batches, settings and digests. Enumerates and checks points unless nothing changed since last time.
FLOWS = prepare_for_snakemake(config)


pathvars:
    results=config["results"],


wildcard_constraints:
    study="[a-z0-9][a-z0-9-]*",
    batch="[0-9]{3}",


# Quick steps that would wait longer for a cluster's queue than they run.
localrules:
    all,
    render,
    aggregate,
    select,
    report,
    verdict,
    published,
    validation,
    paper,
    experiment,
