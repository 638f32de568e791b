// Package overnats is package cluster's Records, Messages and Logs at NATS.
//
// # Records
//
// They are a key-value bucket of JetStream, afstream_CLUSTER: a stream that keeps the last message of each subject. A
// write names the revision that it expects, and the leader of the stream compares. Reads go to that leader as well and not,
// as is usual, to any copy: a copy that is cut off from the others could show old records for as long as it is. So a value
// is at most as old as it takes a leader that was cut off to notice.
//
// An error other than cluster.ErrNoRecord and cluster.ErrConflict says nothing of a write: it may have been done, or be done
// later. So a conflict can be with one's own earlier try. Whoever sees one reads again and looks whether what is there
// is what it wanted. A conflict is always with what is there: where NATS refuses a write only because another of the same record is
// under way, it is tried again.
//
// What is deleted leaves a marker, so that watchers see it. The server removes it after an hour, if it can (from version 2.11 on).
//
// # Watching
//
// A watch is a consumer that the server pushes to, in memory and of one copy: it dies with its server. Each message has a
// number, and when there is none for half a second the server says which the last one was. So what is lost
// or a consumer that is gone is noticed within 2 s, and another one goes on behind the last revision that was told: with
// one message per key, what comes behind it is what has changed since. Only when none can be had for 10 s, or when
// the bucket is another one, or an older copy of it, does a watch end, with the error.
//
// # Logs
//
// The lines of all jobs are a stream, afstream_CLUSTER_log, that takes in what is published on their subjects and keeps the last
// 2000 of each job, 200,000 in all, for 30 days. Appending is publishing without waiting for an answer.
//
// # What survives
//
// Bucket and stream are files, in as many copies as the one who opened them first wished; see broker.Options for what those
// of one server survive. Of three servers any one may be gone. If it was the leader of the bucket, the others choose another one, which
// takes 4 to 10 s; until then nothing can be written, and what was asked for when it died is answered with an error after 5 s.
package overnats
