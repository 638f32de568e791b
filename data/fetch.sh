#!/bin/sh
# Fetches larger real inputs for experiments into .data/ (or the folder given as $1). It uses
# the ordinary clients of package registries only. What is there and whole is not fetched
# again; what cannot be fetched here is skipped with a message, and the exit status is then 1.
#
#   cip.pcap              Go module github.com/gopacket/gopacket (needs go)
#   flights-3m.parquet    npm package vega-datasets (needs npm)
#   airports.csv          the same
#   gcide.txt             Debian package dict-gcide (needs apt-get, dpkg)
#   agaricus.train, .test Debian source package xgboost (needs apt-get with deb-src entries)
set -u

dir=${1:-$(dirname "$0")/.data}
mkdir -p "$dir" || exit 1
dir=$(cd "$dir" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
status=0

skip() { # why
	echo "skip: $1" >&2
	status=1
}

# whole FILE SHA256: is the file there with that content?
whole() {
	[ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]
}

# put FROM NAME SHA256: moves a fetched file into place if it is what it should be.
put() {
	if whole "$1" "$3"; then
		mv "$1" "$dir/$2" && echo "$dir/$2"
	else
		skip "$2: fetched file is missing or has another content than expected"
	fi
}

has() { # name sha256: done already?
	whole "$dir/$1" "$2" && echo "$dir/$1 (there)"
}

pcap_sum=1c250ffcfae8fe96248a0a20f638b266816cca745a576b00912698493d766d01
flights_sum=dbeb920c90f59b6ccaff823dcc3d08f25a97fa1ce128d93f40be4e931f5900b0
airports_sum=903c7169e6d558eefb95295fe2947ec8503135fbb855ea5c737cf4a90ea603ad
gcide_sum=802beb667e1fb666203e750f1faea60d5c202ac5430c2083c4180494609f10a7
train_sum=915c2def06e9b44a306ad097fe8b6652c7c477d9c1e605bd2130ad20a70a8ad6
test_sum=765db79391141953d890ce197fe828a621d6487fbba4de5e4d2217bd140371c0

fetch_pcap() {
	has cip.pcap $pcap_sum && return
	command -v go >/dev/null || { skip "cip.pcap: no go"; return; }
	mod=$(go mod download -json github.com/gopacket/gopacket@v1.7.7 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	cp "$mod/layers/testdata/cip.pcap" "$tmp/" 2>/dev/null
	chmod u+w "$tmp/cip.pcap" 2>/dev/null
	put "$tmp/cip.pcap" cip.pcap $pcap_sum
}

fetch_vega() {
	has flights-3m.parquet $flights_sum && has airports.csv $airports_sum && return
	command -v npm >/dev/null || { skip "flights-3m.parquet, airports.csv: no npm"; return; }
	(cd "$tmp" && npm pack --silent vega-datasets@3.2.1 >/dev/null && tar xzf vega-datasets-3.2.1.tgz)
	put "$tmp/package/data/flights-3m.parquet" flights-3m.parquet $flights_sum
	put "$tmp/package/data/airports.csv" airports.csv $airports_sum
}

fetch_gcide() {
	has gcide.txt $gcide_sum && return
	command -v apt-get >/dev/null || { skip "gcide.txt: no apt-get"; return; }
	mkdir "$tmp/gcide"
	(cd "$tmp/gcide" && apt-get download -q dict-gcide=0.48.5+nmu2 >/dev/null 2>&1 &&
		dpkg -x dict-gcide_*.deb . && gzip -dc usr/share/dictd/gcide.dict.dz >gcide.txt)
	put "$tmp/gcide/gcide.txt" gcide.txt $gcide_sum
}

fetch_agaricus() {
	has agaricus.train $train_sum && has agaricus.test $test_sum && return
	command -v apt-get >/dev/null || { skip "agaricus: no apt-get"; return; }
	mkdir "$tmp/xgboost"
	if ! (cd "$tmp/xgboost" && apt-get source -q --download-only xgboost=1.7.4-1 >/dev/null 2>&1); then
		skip "agaricus: no source package xgboost 1.7.4-1; apt needs deb-src entries for it"
		return
	fi
	for set in train test; do
		tar xf "$tmp"/xgboost/xgboost_*.orig.tar.* -O --wildcards "*/demo/data/agaricus.txt.$set" >"$tmp/$set" 2>/dev/null
	done
	put "$tmp/train" agaricus.train $train_sum
	put "$tmp/test" agaricus.test $test_sum
}

fetch_pcap
fetch_vega
fetch_gcide
fetch_agaricus
exit $status
