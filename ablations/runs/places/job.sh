#!/bin/bash
# One job of an array that `ablate run --on slurm` submitted. All grids have this text: the runs of the job are named
# in array.json beside it, and what is done stands in the folders of the runs. $1 is the Python to use.
python=$1
job=$SLURM_ARRAY_TASK_ID
if [ -e before.sh ]; then
    . ./before.sh
fi
trap : TERM USR1 USR2 # the runs save; this shell lives on, to put the job back into the queue
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000))

"$python" -m ablations.runs.places.job begin "$job" || exit 0
code=0
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --mpi=none --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
        "$python" -m ablations.runs.places.job train "$job"
    code=$?
fi
srun --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    "$python" -m ablations.runs.places.job work "$job" "$code"
"$python" -m ablations.runs.places.job left "$job" || exit 0

# Something is left that is worth another attempt. A job that somebody cancelled is not running any more.
here=${SLURM_ARRAY_JOB_ID}_$job
if [ "$(squeue --noheader --jobs="$here" --format=%T)" = RUNNING ]; then
    trap - TERM
    scontrol requeue "$here" && sleep 600 # SLURM ends it; a job that ends by itself would not come back
fi
exit 75
