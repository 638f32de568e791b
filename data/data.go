package data

import _ "embed"

//go:embed cip.pcap
var cip string

//go:embed flights.csv.gz
var flights string

//go:embed opticks.txt.gz
var opticks string

// File is an input that comes with the program.
type File struct {
	// Name is the file's name, with the extensions that tell its format.
	Name string
	// Content is the file as it is: gzip is not unwrapped.
	Content string
}

// Lookup returns the input of that name, one of Names, or false if there is none.
func Lookup(name string) (File, bool) {
	switch name {
	case "cip.pcap":
		return File{Name: "cip.pcap", Content: cip}, true
	case "flights":
		return File{Name: "flights.csv.gz", Content: flights}, true
	case "opticks":
		return File{Name: "opticks.txt.gz", Content: opticks}, true
	}
	return File{}, false
}

// Names returns the names of all inputs, sorted.
func Names() []string { return []string{"cip.pcap", "flights", "opticks"} }
