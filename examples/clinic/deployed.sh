#!/bin/sh
# The clinics as processes of their own, on this machine's loopback interface, with TLS and keys: each command as the
# owner of a clinic's records or the operator of the server would give it.
#
#   examples/clinic/deployed.sh fedavg            # or another experiment of this folder
set -eu

name=$1
here=$(dirname "$0")
folder=runs/clinic-$name-federation
murmura=${MURMURA:-murmura}
port=${PORT:-9443}

rm -rf "$folder"
"$murmura" federation new "$here/$name.toml" --out "$folder" --address "127.0.0.1:$port"
sites=$(cd "$folder" && ls -d [a-z]*/ | sed 's,/,,' | grep -v '^server$')

# At each clinic: make its keys.
for site in $sites; do "$murmura" site init "$folder/$site" > /dev/null; done
# At the server: make the clinics known.
"$murmura" federation add "$folder" "$folder"/*/public.json
# At each clinic: look at what the run asks, say yes, and start. Four share this machine's cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} MKL_NUM_THREADS=${MKL_NUM_THREADS:-1}
started=
trap 'kill $started 2> /dev/null; wait' EXIT
for site in $sites; do
    "$murmura" site consent "$folder/$site" > "$folder/$site/terms.txt"
    "$murmura" site start "$folder/$site" > "$folder/$site/site.log" 2>&1 &
    started="$started $!"
done
# At the server: lead the run.
unset OMP_NUM_THREADS MKL_NUM_THREADS
"$murmura" serve "$folder" --listen "127.0.0.1:$port" --set "run.folder=runs/clinic-$name-deployed" --overwrite
