// Package backup is where the state backups and item logs of workers live. It has two layers.
//
// # Store
//
// A [Store] is an ordered set of keys with two guarantees: a batch is applied as one atom, and an owner that was fenced
// in a newer epoch can never write again, not even with what it had queued before. [OpenBadger] keeps it on disk,
// [NewMemory] in memory; both pass the same tests.
//
// What survives what:
//
//	                          memory   Badger   Badger with Sync
//	failure of a worker       yes      yes      yes
//	killed process            no       yes      yes
//	power cut, kernel crash   no       partly   yes
//
// Partly means that the last seconds may be missing; what is there is still consistent, since a commit that was torn is
// not taken. A directory with the newest tables damaged from outside may refuse to open, with an error naming the file.
//
// Writing stops, with [ErrDiskFull], before the disk is full: the database writes through mapped memory, where a full
// disk would end the process. 64 MiB have to be free, and 16 MiB to delete something. Another process may still take those between two writes.
//
// # Partition
//
// A [Partition] lays out the state of one partition of an operator on a store:
//
//	p := backup.OpenPartition(store, backup.PartitionKey{Job: job, Incarnation: inc, Operator: "count", Partition: 3}, epoch)
//	r, err := p.Load()                   // fences older epochs, finds the newest complete commit
//	for c, err := r.Chunks(); ...        // the elements, base first, in bounded memory
//	err = p.ScanLog(func(e backup.LogEntry) error { ... })  // items above the committed position
//	...
//	p.Commit(&backup.Commit{Elements: changed, Inputs: positions}, done)
//	p.AppendLog(entries, done)
//
// The layout is a log: a partial commit is one record appended to its generation, so that it costs one small write
// however many elements changed; a whole commit starts the next generation. The order of writes is what makes it safe:
// the chunks of a base before its manifest, a generation's manifest before the deletion of any older one, a commit
// before the deletion of the log entries it covers. The generation before the newest is kept, so disk usage is up to
// twice a base with its deltas, which is about six times the state.
//
// Everything read back was checked: each record carries a version, its own place and a CRC32C. What cannot be used is
// named in [Restored].Damaged and the newest commit before it is used instead. The one thing that cannot be told from
// a commit that never happened is a newest record that vanished without a trace.
//
// # Marks
//
// Positions that are written every few hundred items and replace each other go past the database: [Partition.Mark] is one
// write to a file of slots beside it ([Marker]). A mark says which commit it is based on, and without that one it says nothing,
// so a power cut that takes the commit takes the mark along.
//
// # Jobs
//
// [SaveIncarnation] keeps the epoch and failure count of a worker, on which its error budget depends: the count never
// goes down. [NewIncarnation] gives each run of a job a name of its own that is part of all its keys, so that a new job
// never finds the state of an old one of the same name; [DropJob] deletes a run. A store on disk gives back the room of what was
// deleted when nothing has been written for ten seconds, at once if its disk is full, or else as tables are compacted.
//
// [Results] keeps what the sinks of a run have found, for whoever asks later. It outlives the state of the run.
//
// When the state of a job is divided anew among partitions, those of the old layout are closed by [Freeze] and read by any
// number of others ([Read]); [Drop] deletes one when all of it has been saved elsewhere (PartitionKey.Layout).
//
// # Cost
//
// On two cores of a 2020s server, on a file system without flush: a batch alone takes 8 us and 1.7 us when 16 are in
// flight, because all that are waiting share one transaction; a commit of 64 elements of 16 bytes takes 16 us and
// allocates nothing in this package; a mark takes 0.1 us where files can be mapped, else 1 us. One transaction for each
// batch would take 13 us with 16 in flight. The benchmarks
// measure this.
//
// Memory: a store on disk with a small state keeps about 35 MB of its own and as much of mapped files. Flushes and
// compactions of a large one take table buffers on top, 150 MB at times after 60 MB of whole commits in a row.
package backup
