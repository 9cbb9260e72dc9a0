#!/bin/bash
# Script of each job of an array that `ablate run --on slurm` submitted, the same for all arrays. array.json
# beside it names the runs of the job, and the folders of the runs say what is done. $1 is the Python to use.
array_folder=$PWD
if [ -e before.sh ]; then
    . ./before.sh
    set +eu +o pipefail # a failed training must not end this script, which puts the job back into the queue
    cd "$array_folder" || exit 1
fi
python=$1
job=$SLURM_ARRAY_TASK_ID
export SLURM_EXPORT_ENV=ALL # srun passes on what before.sh set, also where SBATCH_EXPORT is NONE
trap : TERM USR1 USR2 # the runs save; this shell goes on, to put the job back into the queue
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000))

"$python" -P -m ablations.runs.places.job begin "$job" || exit 0
code=0
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --mpi=none --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
        "$python" -P -m ablations.runs.places.job train "$job"
    code=$?
fi
srun --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    "$python" -P -m ablations.runs.places.job work "$job" "$code"
if [ $? -ne 75 ]; then # with 75 `work` says that it saved runs; `left` might not start before SLURM ends the job
    "$python" -P -m ablations.runs.places.job left "$job" || exit 0
fi

# Some run is worth another attempt. If somebody cancelled the job, it is not RUNNING any more.
here=${SLURM_ARRAY_JOB_ID}_$job
for _ in $(seq 30); do # SLURM's controller may be down for a while
    if state=$(squeue --noheader --jobs="$here" --format=%T); then
        [ "$state" = RUNNING ] || exit 75
        trap - TERM
        scontrol requeue "$here" && sleep 600 # SLURM ends this job; one that ends by itself does not come back
    fi
    sleep 10
done
exit 75
