// Package grep finds the lines of a text that hold one of some strings, or match one of some regular expressions.
//
//	blocks := stream.From(t, "text", connector.Blocks(grep.Blocks("book.txt", o)))
//	matches := stream.Then(blocks, "grep", func() *grep.Search { return grep.NewSearch(o) }, stream.Workers(4))
//	stream.To(matches, "lines", connector.Collect(&result))
//
// [Search] emits a [Match] per line that matches, with its number, its offset and its text; matches of several
// partitions come in any order, and the offset puts them right. [Tally] emits only how many lines of each block match,
// and [Sum] adds those up.
//
// # Method
//
// Items are blocks of whole lines, 64 KiB unless told otherwise: what costs something per item costs next to nothing
// per byte. A block is searched as a whole, and lines are looked for only around what was found.
//
//   - One string: the byte of it that is rarest in text is looked for with vector instructions (bytes.IndexByte), and
//     the rest compared where it is found.
//   - Several strings, or any with IgnoreCase: an automaton that takes one step per byte whatever their number (Aho and
//     Corasick, "Efficient string matching", Comm. ACM 18, 1975).
//   - Regular expressions, in the syntax of package regexp: line by line, and only those lines that hold the string
//     which a match must begin with, if there is such a string.
//
// A line ends with LF or CRLF, which is not part of it. Text need not be valid UTF-8. IgnoreCase makes ASCII letters of
// strings, and all letters of regular expressions, match either case.
//
// # Fault tolerance
//
// There is no state, so theta has nothing to bound and alpha is 0. What a failure can lose is matches on their way: at
// most Gamma, and L blocks with up to beta matches each where the source cannot be read again ([Bound]). A block that
// was being searched is searched again, so matches may come twice. [Compare] tells both.
package grep
