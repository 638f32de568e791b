package connector_test

import (
	"fmt"
	"io"
	"os"

	"github.com/afstream/afstream/connector"
)

// The busiest sources of a capture, counted by hand instead of by a job.
func ExampleOpenKeyed() {
	open, err := connector.OpenKeyed(connector.KeyedOptions{
		Path:   "builtin:cip.pcap",
		Key:    "src",
		Weight: "bytes",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	source, err := open(0, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Close()
	bytes := map[connector.Key]float64{}
	slab := make([]connector.Keyed, 256)
	for {
		n, err := source.Read(slab)
		for _, item := range slab[:n] {
			bytes[item.Key] += item.Weight
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	var most connector.Key
	for key := range bytes {
		if bytes[key] > bytes[most] {
			most = key
		}
	}
	fmt.Printf("%d sources, most bytes from %v\n", len(bytes), most)
	// Output: 12 sources, most bytes from 10.50.1.54
}

func ExampleTable() {
	type count struct {
		word string
		n    int
	}
	open := connector.Table(os.Stdout,
		connector.Column[count]{Title: "word", Value: func(c count) string { return c.word }},
		connector.Column[count]{Title: "count", Value: func(c count) string { return fmt.Sprint(c.n) }, Number: true},
	)
	sink, err := open(0, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := sink.Write([]count{{"the", 120}, {"stream", 7}}); err != nil {
		fmt.Println(err)
	}
	if err := sink.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// word    count
	// the       120
	// stream      7
}
