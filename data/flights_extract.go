//go:build ignore

// This program makes flights.csv.gz from the first rows of flights-3m.parquet, which
// fetch.sh fetches:
//
//	go run flights_extract.go .data/flights-3m.parquet flights.csv.gz
package main

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"log"
	"os"

	"github.com/parquet-go/parquet-go"
)

// extractRows is how many flights the extract has.
const extractRows = 20_000

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: flights_extract PARQUET CSV_GZ")
	}
	if err := extract(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func extract(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	file, err := parquet.OpenFile(in, info.Size())
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	// The header of a gzip.Writer is empty unless set, so the same rows make the same file.
	zip, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeRows(csv.NewWriter(zip), file); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return out.Close()
}

func writeRows(w *csv.Writer, file *parquet.File) error {
	var record []string
	for _, c := range file.Root().Columns() {
		record = append(record, c.Name())
	}
	w.Write(record)
	rows := file.RowGroups()[0].Rows()
	defer rows.Close()
	buf := make([]parquet.Row, 100)
	for left := extractRows; left > 0; {
		n, err := rows.ReadRows(buf[:min(left, len(buf))])
		for _, row := range buf[:n] {
			for i, v := range row {
				record[i] = v.String()
			}
			w.Write(record)
		}
		left -= n
		if err != nil && left > 0 {
			return fmt.Errorf("%d rows short: %w", left, err)
		}
	}
	w.Flush()
	return w.Error()
}
