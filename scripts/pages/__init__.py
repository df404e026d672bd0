"""Pages for people: of a scan, and of a folder; and planes as radiologists hang them.

Begin with `page.write_page`.
"""
