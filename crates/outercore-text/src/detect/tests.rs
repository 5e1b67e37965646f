use super::*;

fn detected(name: &str, text: &[u8], purpose: Purpose, options: &TextOptions) -> Result<Dialect> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    detect(&path, purpose, options, Bytes::mib(16))
}

fn plainly(text: &str, purpose: Purpose) -> Result<Dialect> {
    detected("file.txt", text.as_bytes(), purpose, &TextOptions::default())
}

#[test]
fn separators_headers_and_comments_are_found() {
    use Purpose::{Edges, NamedEdges, Table, Triples};
    use Separator::{Blanks, Comma, Pipe, Semicolon, Tab};
    for (text, purpose, separator, columns, header, lines) in [
        ("0 1\n2 3\n", Edges, Blanks, 2, None, 0),
        ("src,dst\n0,1\n", Edges, Comma, 2, Some(vec!["src", "dst"]), 1),
        ("\"src\"\t\"dst\"\n0\t1\n", Edges, Tab, 2, Some(vec!["src", "dst"]), 1),
        ("# graph\n\nid_1,id_2\n0,1\n", Edges, Comma, 2, Some(vec!["id_1", "id_2"]), 3),
        ("# graph\n0 1\n", Edges, Blanks, 2, None, 1),
        ("a b w\r\n4 1 2\r\n", Edges, Blanks, 3, Some(vec!["a", "b", "w"]), 1),
        ("\u{feff}7,1\n", Edges, Comma, 2, None, 0),
        ("\u{feff}src,b\n0,1\n", Edges, Comma, 2, Some(vec!["src", "b"]), 1),
        ("a;1\nb;2\n", NamedEdges, Semicolon, 2, None, 0),
        ("a;b,r,c\nd,r,e\n", Triples, Comma, 3, None, 0),
        ("New York\tin\tUS, East\nA, B\tin\tC\n", Triples, Tab, 3, None, 0),
        ("m|n\nw|x\n", NamedEdges, Pipe, 2, None, 0),
        ("0.5,NA\n1.5,2.5\n", Table, Comma, 2, None, 0),
        ("3\n1\n", Table, Comma, 1, None, 0),
        ("# top\nalice,bob\n", NamedEdges, Comma, 2, None, 1),
    ] {
        let found = plainly(text, purpose).unwrap();
        assert_eq!((found.separator, found.columns), (separator, columns), "{text:?}");
        assert_eq!(found.start.lines, lines, "{text:?}");
        let header = header.map(|names| names.into_iter().map(str::to_owned).collect());
        assert_eq!(found.header, header, "{text:?}");
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_refused_with_the_option_that_decides() {
    use Purpose::{Edges, NamedEdges, Table};
    for (name, text, purpose, expected) in [
        ("e.csv", "0,1\n4,2\n", Edges, "may be data, or the header that pandas writes"),
        ("e.csv", "5,3\nu,v\nx,y\n", NamedEdges, "has numbers, and all other lines have text"),
        ("y.csv", "0\n1\n", Table, "header=false"),
        ("e.csv", "a;b,c;d\ne;f,g;h\n", NamedEdges, "separator="),
        ("x.csv", "0,5;1\n0,25;2\n", Table, "by commas (2 columns) or by semicolons"),
        ("e.csv", "a,b\n#c,d\n", NamedEdges, "comment="),
        ("e.csv", "user,item\nann,book\n", NamedEdges, "`user,item` may name the columns"),
        ("e.csv", "a,b\nann,bob\nbob,cid\n", NamedEdges, "`a,b` may name the columns"),
        ("e.csv", "x1,y1\nann,bob\nx1,y1\nbob,cid\n", NamedEdges, "`x1,y1` comes again"),
        ("e.csv", "drug,interaction,target\na,r,b\n", Purpose::Triples, "header=false"),
        ("e.csv", "src,src\n0,1\n", Edges, "two columns are called `src`"),
        ("e.csv", "name 1\n0 1\n2 3\n", Edges, "has names in some columns and numbers"),
        ("e.csv", "src,dst\n0,1,\n4,2,\n", Edges, "the rows have 3 fields: each row ends with a"),
        (
            "e.txt",
            "\"src\" \"dst\"\n\"1\" 0 1\n\"2\" 4 2\n",
            Edges,
            "line 1: the header has 2 names, the rows have 3 fields: R writes row names",
        ),
        ("e.txt", "from to\na ann bob\n", NamedEdges, "write with `row.names=FALSE`"),
        ("x.csv", "a\n1,5\n", Table, "the header has 1 name, the rows have 2 fields"),
        ("e.txt", "7\n8\n", Edges, "found one column, expected at least two"),
    ] {
        let options = TextOptions::default();
        let error = detected(name, text.as_bytes(), purpose, &options).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{text:?}: {error}");
    }
    let error = detected("e", b"\xFF\xFE0\0", Edges, &TextOptions::default()).unwrap_err();
    assert!(error.to_string().contains("iconv -f UTF-16"), "{error}");
    for (text, order) in [(b"0\0,\x001\0\n\0", "LE"), (b"\x000\0,\x001\0\n", "BE")] {
        let error = detected("e", text, Edges, &TextOptions::default()).unwrap_err();
        assert!(error.to_string().contains(&format!("iconv -f UTF-16{order} ")), "{error}");
    }
    let error = detected("e", b"0 1\n2\0 3\n", Edges, &TextOptions::default()).unwrap_err();
    assert!(error.to_string().contains("byte 5 is 0"), "{error}");
}

#[test]
fn a_row_that_starts_like_a_comment_is_not_lost_above_the_data() {
    use Purpose::{Edges, NamedEdges, NamedTable, Table, Triples};
    for (text, purpose) in [
        ("#a,b\nc,d\n", NamedEdges),
        ("# made by hand\n#a,b\nc,d\n", NamedEdges),
        ("#a b\nc d\n", NamedEdges),
        ("#a\tr\tb\nb\tr\t#a\n", Triples),
        ("#a,1\nb,2\n", Table),
        ("%a,1\nb,2\n", Table),
        ("#a,1\nb,2\n", NamedTable),
        ("id,v\n#a,1\nb,2\n", NamedTable),
        ("#a\nb\nc\n", NamedTable),
    ] {
        let error = plainly(text, purpose).unwrap_err().to_string();
        let above = text.lines().filter(|line| line.starts_with("# ")).count() as u64;
        let mark = if above > 0 { "# " } else { "" };
        assert!(error.contains(&format!("`comment={mark}` reads")), "{text:?}: {error}");
        let options = TextOptions { comment: Some(mark.into()), ..TextOptions::default() };
        let found = detected("e", text.as_bytes(), purpose, &options).unwrap();
        assert_eq!(found.comment_lines, above, "{text:?}");
    }
    for (text, purpose) in [("#a,#b\n#b,#c\n", NamedEdges), ("#a\tr\t#b\n", Triples)] {
        let error = plainly(text, purpose).unwrap_err().to_string();
        assert!(error.contains("hint: `comment=` reads"), "{text:?}: {error}");
    }
    for (text, purpose, lines) in [
        ("# FromNodeId\tToNodeId\n3\t9\n", NamedEdges, 1),
        ("# FromNodeId\tToNodeId\na\tb\n", NamedEdges, 1),
        ("#source,target\na,b\n", NamedEdges, 1),
        ("#x,y\n0.5,2\n", Table, 1),
        ("#Nodes: 3 Edges: 2\na b\n", NamedEdges, 1),
        ("## a,b\nc,d\n", NamedEdges, 1),
        ("#head\trelation\ttail\na\tr\tb\n", Triples, 1),
        ("#1,2\n3,4\n", Edges, 1),
        ("# nothing\n", NamedEdges, 1),
    ] {
        assert_eq!(plainly(text, purpose).unwrap().comment_lines, lines, "{text:?}");
    }
}

#[test]
fn every_separator_that_fits_is_offered() {
    let error = plainly("a;b,c;d\ne;f,g;h\n", Purpose::NamedEdges).unwrap_err().to_string();
    assert!(error.contains("`separator=comma` or `separator=semicolon`"), "{error}");
}

#[test]
fn quotes_enclose_fields_between_tabs_and_blanks_where_all_lines_agree() {
    use crate::notation::Quotes::{Enclosing, Plain};
    use Purpose::{Edges, NamedEdges, Triples};
    for (text, purpose, quotes, columns) in [
        ("\"alice\"\t\"bob\"\n\"bob\"\t\"carol\"\n", NamedEdges, Enclosing, 2),
        ("\"Al B\" \"bob\"\n\"bob\" \"C\"\n", NamedEdges, Enclosing, 2),
        ("src\tdst\n\"alice\"\t\"bob\"\n\"bob\"\t\"al\"\n", NamedEdges, Enclosing, 2),
        ("\"a\" \"r\" 0.5\n\"b\" \"s t\" 1\n", NamedEdges, Enclosing, 3),
        ("\"a node\" \"dst\"\n0 1\n2 3\n", Edges, Enclosing, 2),
        ("a\tr\t\"5\"\" disk\"\na\tr\tb\n", Triples, Enclosing, 3),
        ("\"Heroes\"\tby\tBowie\nLow\tby\tBowie\n\"Low\"\tby\tAl\n", Triples, Plain, 3),
        ("\"Al\" B\tby\tC\n\"D\"\tby\tC\n", Triples, Plain, 3),
        ("5\" disk\tr\tb\n3\" disk\tr\tb\n", Triples, Plain, 3),
        ("5\t1\n2\t3\n", Edges, Plain, 2),
    ] {
        let found = plainly(text, purpose).unwrap();
        assert_eq!((found.quotes, found.columns), (quotes, columns), "{text:?}");
    }
}

#[test]
fn line_ends_of_old_macs_are_refused_for_every_purpose() {
    use Purpose::{Edges, NamedEdges, Table, Triples};
    for purpose in [Edges, NamedEdges, Triples, Table] {
        for (text, line) in [("5 1\r2 3\r4 5\r", 1), ("a b c\nd\re f\n", 2)] {
            let error = plainly(text, purpose).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}: a carriage return")), "{error}");
            assert!(error.contains("tr '\\r' '\\n'"), "{error}");
        }
    }
    for text in ["5 1\r\n2 3\r\n", "5 1\r\r\n2 3\r\r\n", "5 1\n2 3\r"] {
        assert_eq!(plainly(text, Edges).unwrap().columns, 2, "{text:?}");
    }
}

#[test]
fn a_header_tells_the_separator_of_rows_with_two() {
    let options = TextOptions { by_name: true, ..TextOptions::default() };
    for (text, separator) in [
        ("name,pay,tag\na,1,x;y\nb,2,z;x\n", Separator::Comma),
        ("name;pay\na,x;1\nb,y;2\n", Separator::Semicolon),
        ("name,tag\na,x y\nb,z x\n", Separator::Comma),
    ] {
        let found = detected("u.csv", text.as_bytes(), Purpose::Table, &options).unwrap();
        assert_eq!(found.separator, separator, "{text:?}");
    }
    let both = b"name,tag;more\na,x;y\nb,z;x\n";
    let error = detected("u.csv", both, Purpose::Table, &options).unwrap_err().to_string();
    assert!(error.contains("separator=comma"), "{error}");
}

#[test]
fn an_edge_list_that_begins_with_0_and_1_and_is_sorted_has_no_header() {
    for purpose in [Purpose::Edges, Purpose::NamedEdges] {
        let found = plainly("0,1\n0,2\n1,2\n", purpose).unwrap();
        assert_eq!((found.header, found.start.lines), (None, 0));
        assert!(found.remark.unwrap().starts_with("line 1 is read as data"));
    }
    for unclear in ["0,1\n0,1\n0,2\n", "0,1\n5,2\n3,1\n", "0,1\n0,2\n"] {
        let error = plainly(unclear, Purpose::Edges).unwrap_err().to_string();
        assert!(error.contains("may be data, or the header"), "{unclear:?}: {error}");
    }
}

#[test]
fn a_header_that_comes_again_is_none_of_the_rows() {
    for (text, purpose) in [
        ("follower,followed\n1,2\nfollower,followed\n3,4\n", Purpose::Edges),
        ("\u{feff}src,dst\nsrc,dst\r\n1,2\n\u{feff}src,dst\n", Purpose::Edges),
        ("id,age\n1,2.5\nid,age\n2,3\n", Purpose::Table),
    ] {
        let found = plainly(text, purpose).unwrap();
        assert!(found.header.is_some() && !found.repeats_header(b"1,2"), "{text:?}");
        let header = found.header_line.clone().unwrap();
        assert!(found.repeats_header(header.as_bytes()), "{text:?}");
        assert!(found.kinds.iter().all(|kind| kind.is_numeric()), "{text:?}: {:?}", found.kinds);
    }
    let ages = plainly("age\n1\nage\n2\n", Purpose::Table).unwrap();
    assert_eq!((ages.header_line.as_deref(), &ages.kinds[..]), (Some("age"), &[Kind::Integer][..]));
    let users = plainly("user\nuser_1\nuser\nuser_27\n", Purpose::Table).unwrap();
    assert_eq!(users.header_line.as_deref(), Some("user"));
    // In a single column of words, a row may hold the same word as the header; and numbers may be
    // data.
    for (text, purpose) in [("name\nann\nbob\n", Purpose::Table), ("1,2\n1,2\n", Purpose::Edges)] {
        assert_eq!(plainly(text, purpose).unwrap().header_line, None, "{text:?}");
    }
}

#[test]
fn options_decide() {
    let text = b"0,1\n4,2\n";
    for (header, lines) in [(true, 1), (false, 0)] {
        let options = TextOptions { header: Some(header), ..TextOptions::default() };
        let found = detected("e.csv", text, Purpose::Edges, &options).unwrap();
        assert_eq!(found.start.lines, lines);
    }
    let options = TextOptions { by_name: true, ..TextOptions::default() };
    let named = |text: &[u8]| detected("h.csv", text, Purpose::Edges, &options);
    assert_eq!(named(b"a,b\n0,1\n").unwrap().header.unwrap(), ["a", "b"]);
    assert_eq!(named(b"a,1\n0,1\n").unwrap().header.unwrap(), ["a", "1"]);
    let error = named(b"1,2,5\n0,1,5\n").unwrap_err().to_string();
    assert!(error.contains("line 1: `1,2,5`: columns are chosen by name"), "{error}");
    assert!(error.contains("choose `column 1`"), "{error}");
    for header in [true, false] {
        let options = TextOptions { header: Some(header), ..options.clone() };
        let found = detected("h.csv", b"1,2,5\n0,1,5\n", Purpose::Edges, &options).unwrap();
        assert_eq!(found.header.is_some(), header);
    }
    let options = TextOptions { header: Some(true), ..TextOptions::default() };
    let short = b"1 2\n1 0 1\n2 4 2\n";
    let error = detected("e.txt", short, Purpose::Edges, &options).unwrap_err().to_string();
    assert!(error.contains("the header has 2 names, the rows have 3 fields"), "{error}");
    let options = TextOptions { comment: Some(String::new()), ..TextOptions::default() };
    let found = detected("e.csv", b"a,b\n#c,d\n", Purpose::NamedEdges, &options).unwrap();
    assert!(found.comments.is_empty());
    let options = TextOptions { one_based: true, ..TextOptions::default() };
    let found = detected("e.txt", b"1 2\n", Purpose::Edges, &options).unwrap();
    assert_eq!(found.first_id, 1);
}

#[test]
fn conventions_with_a_header_of_their_own_are_found() {
    let text = "%%MatrixMarket matrix coordinate real symmetric\n% made\n\n 4 4 3\n1 1 0.5\n";
    let found = plainly(text, Purpose::Edges).unwrap();
    assert_eq!((found.nodes(), found.entries(), found.columns), (Some(4), Some(3), 3));
    assert_eq!((found.start.lines, found.first_id, found.comment_lines), (4, 1, 1));
    let text = "c roads\np sp 4 2\nc more\na 1 2 7\na 2 1 7\n";
    let found = plainly(text, Purpose::Edges).unwrap();
    assert_eq!((found.nodes(), found.entries(), found.columns), (Some(4), Some(2), 3));
    assert_eq!((found.start.lines, found.first_id), (2, 1));
    let text = "<a>\t<p>\t\"x\ty\" .\n# note\n<a> <p> <b> .\n";
    let found = plainly(text, Purpose::Triples).unwrap();
    assert_eq!((found.format, found.columns), (Format::NTriples, 3));
}

#[test]
fn a_bad_header_of_a_convention_is_named() {
    for (text, expected) in [
        (
            "%%MatrixMarket matrix array real general\n2 2\n",
            "line 1: Matrix Market header: found `matrix array`",
        ),
        (
            "%%MatrixMarket matrix coordinate real\n2 2 1\n",
            "expected `%%MatrixMarket matrix coordinate",
        ),
        ("%%MatrixMarket matrix coordinate real odd\n2 2 1\n", "symmetry is `odd`"),
        ("%%MatrixMarket matrix coordinate complex general\n2 2 1\n", "found `complex` values"),
        (
            "%%MatrixMarket matrix coordinate real general\n2 3 1\n",
            "line 2: Matrix Market header: the matrix is 2 x 3",
        ),
        ("%%MatrixMarket matrix coordinate real general\n2 2\n", "expected three sizes"),
        ("%%MatrixMarket matrix coordinate real general\n", "the line with the sizes is missing"),
        ("p sp 3\n1 2\n", "expected `p KIND NODES EDGES`"),
    ] {
        let error = plainly(text, Purpose::Edges).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let options =
        TextOptions { convention: Some(Convention::MatrixMarket), ..TextOptions::default() };
    let error = detected("m.mtx", b"2 2 1\n1 2\n", Purpose::Edges, &options).unwrap_err();
    assert!(error.to_string().contains("expected the banner"), "{error}");
}
