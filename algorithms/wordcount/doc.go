// Package wordcount counts the words of a text.
//
//	blocks := stream.From(t, "text", connector.Blocks(wordcount.Blocks("book.txt", o)))
//	rows := wordcount.Assemble(blocks, o, wordcount.Workers{Count: 4, Merge: 2})
//	stream.To(rows, "table", connector.Collect(&result))
//
// [Count] cuts blocks of text into words and counts them on the spot, in a table of its own per partition; at the end
// of a window the tables go, in pieces by hash, to [Merge], which adds them up and emits a [Row] for each word, or for
// the most frequent ones. That is [Assemble]. [AssembleSplit] has the shape of the source paper's experiment instead:
// [Split] emits each word as an item and [Tally] counts those whose hash falls to it. It moves 56 bytes per word from
// one goroutine to another, and it is what other operators on words (heavy hitters, distinct count) start with.
//
// # What a word is
//
// [Options].Boundaries chooses.
//
//   - [Unicode]: a segment by the default word boundaries of Unicode Standard Annex 29 that holds a letter or a decimal
//     digit: "can't", "3.14", "snake_case", "naïve", each ideograph by itself. ASCII text, where nearly all words lie,
//     takes a path of its own, about five times as fast; the tests compare it with the full rules.
//   - [Alnum]: a run of ASCII letters and digits, every other byte separates. Without [Options].Fold this counts as
//     does LC_ALL=C tr -cs 'A-Za-z0-9' '\n' < book.txt | sed '/^$/d' | sort | uniq -c
//   - [Letters]: a run of ASCII letters. With Fold this counts as tr A-Z a-z | tr -cs a-z '\n' does.
//   - [Fields]: a run of bytes other than ASCII white space, as awk '{for (i = 1; i <= NF; i++) n[$i]++}' counts.
//
// With Fold, words are lower-cased character by character (unicode.ToLower): the final sigma of Greek stays another
// letter than the other one. Text need not be valid UTF-8: an invalid byte separates Unicode words and is a part of fields.
//
// # Fault tolerance
//
// The state is a table of counts that only grow, backed up word by word. [Options].Norm says how it is compared:
//
//   - errorbound.Max: the largest difference of one word's count. About one small write for each 1/2 theta occurrences
//     of a word, so rare words are hardly ever written.
//   - errorbound.L1: the sum over all words. A backup writes all words that occurred since the last; with the long tail
//     of language that is a write for every second or third word. Choose it where the total is what matters.
//
// An item of Count is a block, and n bytes hold at most (n+1)/2 words, which may all be the same. So
// alpha = (BlockSize+1)/2: blocks must be short against theta, and the default of 256 bytes makes it 128. Count refuses
// blocks that are longer. Tables of partitions are added up, so each partition has an n-th of Theta. An item of Tally is
// a word, alpha = 1, and words are disjoint by hash: under Max each partition has all of Theta.
//
// [Bound] and [BoundSplit] say by how much the answer may be off after any number of failures. Nothing else errs: all
// words are kept, at about 60 bytes for a word of 10 bytes.
package wordcount
