// Package data holds the real inputs that come with the program, so that every job runs
// on real data from anywhere without a download:
//
//	cip.pcap   26,068 captured packets of 174 s, from 12 IPv4 sources (3.4 MB)
//	flights    the first 20,000 flights within the US in 2001 (1 and 2 January) in order
//	           of departure, as gzipped CSV with the columns date (microseconds since
//	           1970 in local time), delay (minutes of arrival, negative if early),
//	           distance (miles), origin and destination (airports)
//	opticks    the First Book of Newton's Opticks, 4,108 lines, 249 KB, as gzipped text
//
// LICENSES.md says where they come from and under which terms. The script fetch.sh
// fetches larger inputs into a folder .data for experiments; nothing needs them.
package data
